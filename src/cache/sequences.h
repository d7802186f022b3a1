// cache: which blocks a sequence holds, what is shared, what a step adds. It knows no format. Private.
//
// Layers that are alike in widths, window and spec are a group; each group has blocks of its own, and a sequence has a table of
// them a group.
#pragma once

#include <map>
#include <vector>

#include "cache/block_pool.h"
#include "cache/format.h"

namespace kpd::cache {

struct GroupBlocks {
  BlockPool open, sealed;
  Sealing sealing;
};

class Sequences {
 public:
  // Of a group, by block of the sequence. Open ones are kNoBlock once they were sealed and given back; sealed ones are there
  // for all blocks that are complete, where the group seals.
  struct Table {
    std::vector<uint32_t> open, sealed;
  };
  struct Sequence {
    std::vector<Table> tables;       // of each group
    std::vector<int32_t> positions;  // of the tokens held, then of those that begin() announced
    size_t length = 0;
    bool exact = true;  // false once it was cut where no open blocks were left: what follows was computed from coarser ones
    Plan plan;
  };
  struct Part {
    Sequence* sequence;
    size_t first_row, n_rows;
  };

  explicit Sequences(std::vector<GroupBlocks> groups) : groups_(std::move(groups)) {}

  std::vector<GroupBlocks>& groups() { return groups_; }
  const std::vector<GroupBlocks>& groups() const { return groups_; }
  const std::vector<Part>& pending() const { return pending_; }
  const Sequence* find(SequenceId id) const;
  Sequence* find(SequenceId id);
  size_t length(SequenceId id) const;
  int32_t next_position(SequenceId id) const;

  // As KvCache has them.
  void begin(const Batch& batch);
  void commit();
  void drop_pending();
  void set_plan(SequenceId id, const Plan& plan);
  // A saved sequence takes the place of another, with open blocks where `has_open` (of each group and block) says so, and
  // sealed ones for what is complete. Throws Error(kLimitExceeded), before anything is changed.
  Sequence& restore(SequenceId id, std::vector<int32_t> positions, const std::vector<std::vector<bool>>& has_open);
  // The open block of a tail that is not complete must be there: also truncate() and fork() leave none without.
  void truncate(SequenceId id, size_t length);
  void fork(SequenceId from, SequenceId to, size_t length);
  // Makes the open blocks from `first_block` on that hold the first `length` tokens the sequence's own; all or none.
  void own_blocks(Sequence& s, size_t first_block, size_t length);

 private:
  Sequence& made(SequenceId id);
  size_t n_copies(const BlockPool& pool);
  static size_t n_alone(const BlockPool& pool, const std::vector<uint32_t>& blocks);
  void own_block(BlockPool& pool, uint32_t& block);
  void shrink(Sequence& s);

  std::vector<GroupBlocks> groups_;
  std::map<SequenceId, Sequence> sequences_;
  std::vector<Part> pending_;
  // Kept for their memory.
  std::vector<uint32_t> written_;  // shared blocks, once a writer
  std::vector<SequenceId> seen_;
};

}  // namespace kpd::cache
