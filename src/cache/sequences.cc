// cache: see sequences.h.
#include "cache/sequences.h"

#include <algorithm>

#include "kpd/base/error.h"

namespace kpd::cache {

const Sequences::Sequence* Sequences::find(SequenceId id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : &it->second;
}

Sequences::Sequence* Sequences::find(SequenceId id) {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : &it->second;
}

Sequences::Sequence& Sequences::made(SequenceId id) {
  Sequence& s = sequences_[id];
  s.tables.resize(groups_.size());
  return s;
}

size_t Sequences::length(SequenceId id) const {
  const Sequence* s = find(id);
  return s == nullptr ? 0 : s->length;
}

int32_t Sequences::next_position(SequenceId id) const {
  const Sequence* s = find(id);
  return s == nullptr || s->length == 0 ? 0 : s->positions[s->length - 1] + 1;
}

// Gives back what is beyond the sequence's length.
void Sequences::shrink(Sequence& s) {
  s.positions.resize(s.length);
  for (size_t g = 0; g < s.tables.size(); ++g) {
    Table& table = s.tables[g];
    const auto release = [](BlockPool& pool, std::vector<uint32_t>& blocks, size_t n) {
      while (blocks.size() > n) {
        if (blocks.back() != kNoBlock) pool.release(blocks.back());
        blocks.pop_back();
      }
    };
    release(groups_[g].open, table.open, blocks_for(s.length));
    release(groups_[g].sealed, table.sealed, s.length / kBlockTokens);
  }
}

// A sequence that was only announced is forgotten with its announcement, unless it has a plan.
void Sequences::drop_pending() {
  for (const Part& part : pending_) shrink(*part.sequence);
  pending_.clear();
  std::erase_if(sequences_, [](const auto& entry) { return entry.second.length == 0 && entry.second.plan == Plan{}; });
}

// Makes a block that others share the sequence's own.
void Sequences::own_block(BlockPool& pool, uint32_t& block) {
  if (!pool.shared(block)) return;
  const uint32_t copy = pool.copy(block);
  pool.release(block);
  block = copy;
}

// Copies that must be made so that each sequence that writes to a shared block has it alone: written_ names the block once a
// writer, and is put in order. Where all its holders write, the last of them keeps it.
size_t Sequences::n_copies(const BlockPool& pool) {
  std::sort(written_.begin(), written_.end());
  size_t n = 0;
  for (size_t i = 0, end; i < written_.size(); i = end) {
    end = i;
    while (end < written_.size() && written_[end] == written_[i]) ++end;
    n += std::min(end - i, pool.n_holders(written_[i]) - 1);
  }
  return n;
}

namespace {

void check_positions(const Batch::Part& part, int32_t next) {
  int32_t last = next - 1;
  for (const int32_t position : part.positions) {
    if (position <= last)
      fail(ErrorCode::kInvalidArgument, "sequence ", part.sequence, ": position ", position, " does not follow ", last);
    last = position;
  }
  if (last > kMaxPosition) fail(ErrorCode::kInvalidArgument, "sequence ", part.sequence, ": there is no position ", last);
}

// Blocks that become complete by n more tokens.
size_t completed(size_t length, size_t n) { return (length + n) / kBlockTokens - length / kBlockTokens; }

}  // namespace

void Sequences::begin(const Batch& batch) {
  drop_pending();
  seen_.clear();
  for (const Batch::Part& part : batch.parts) {
    if (std::find(seen_.begin(), seen_.end(), part.sequence) != seen_.end())
      fail(ErrorCode::kInvalidArgument, "sequence ", part.sequence, " is in the batch twice");
    seen_.push_back(part.sequence);
    check_positions(part, next_position(part.sequence));
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    size_t n_open = 0, n_sealed = 0;
    written_.clear();
    for (const Batch::Part& part : batch.parts) {
      const Sequence* s = find(part.sequence);
      const size_t held = s == nullptr ? 0 : s->length, n = part.positions.size();
      n_open += blocks_for(held + n) - blocks_for(held);
      n_sealed += completed(held, n);
      if (n > 0 && held % kBlockTokens != 0 && groups_[g].open.shared(s->tables[g].open.back()))
        written_.push_back(s->tables[g].open.back());
    }
    groups_[g].open.require(n_open + n_copies(groups_[g].open));
    if (groups_[g].sealing.seals()) groups_[g].sealed.require(n_sealed);
  }
  size_t row = 0;
  for (const Batch::Part& part : batch.parts) {
    Sequence& s = made(part.sequence);
    const size_t n = part.positions.size();
    pending_.push_back({&s, row, n});  // before it takes a block, so that none is lost if there is no memory for the next
    row += n;
    for (size_t g = 0; g < groups_.size(); ++g) {
      GroupBlocks& group = groups_[g];
      Table& table = s.tables[g];
      if (n > 0 && s.length % kBlockTokens != 0) own_block(group.open, table.open.back());
      reserve_twice(table.open, blocks_for(s.length + n));
      while (table.open.size() < blocks_for(s.length + n)) table.open.push_back(group.open.take());
      if (!group.sealing.seals()) continue;
      reserve_twice(table.sealed, (s.length + n) / kBlockTokens);
      while (table.sealed.size() < (s.length + n) / kBlockTokens) table.sealed.push_back(group.sealed.take());
    }
    reserve_twice(s.positions, s.length + n);
    s.positions.insert(s.positions.end(), part.positions.begin(), part.positions.end());
  }
}

void Sequences::commit() {
  for (const Part& part : pending_) {
    Sequence& s = *part.sequence;
    s.length += part.n_rows;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const size_t kept = groups_[g].sealing.kept_blocks, last = s.length / kBlockTokens;
      if (!groups_[g].sealing.seals() || last < kept) continue;
      // Those that no query to come reads: the older ones were given back before.
      std::vector<uint32_t>& open = s.tables[g].open;
      for (size_t b = last - kept + 1; b-- > 0 && open[b] != kNoBlock;) {
        groups_[g].open.release(open[b]);
        open[b] = kNoBlock;
      }
    }
  }
  pending_.clear();
}

void Sequences::set_plan(SequenceId id, const Plan& plan) {
  const Sequence* s = find(id);
  if (s != nullptr && s->length > 0 && s->plan != plan)
    fail(ErrorCode::kInvalidArgument, "sequence ", id, " holds ", s->length, " tokens of another plan");
  made(id).plan = plan;
}

void Sequences::truncate(SequenceId id, size_t length) {
  drop_pending();
  Sequence* s = find(id);
  if (s == nullptr) return;
  s->length = std::min(s->length, length);
  shrink(*s);
  if (s->length == 0 && (length == 0 || s->plan == Plan{})) sequences_.erase(id);
}

void Sequences::fork(SequenceId from, SequenceId to, size_t length) {
  drop_pending();
  if (from == to) return;
  if (length > this->length(from)) {
    fail(ErrorCode::kInvalidArgument, "sequence ", from, " holds ", this->length(from), " tokens, ", length, " were asked for");
  }
  truncate(to, 0);
  if (length == 0) return;
  const Sequence& source = *find(from);
  const auto first = [](const auto& list, size_t n) {
    return std::remove_cvref_t<decltype(list)>(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(n));
  };
  Sequence copy;
  copy.length = length;
  copy.plan = source.plan;
  copy.exact = source.exact;
  copy.positions = first(source.positions, length);
  for (const Table& table : source.tables) {
    copy.tables.push_back(
        {first(table.open, blocks_for(length)), first(table.sealed, std::min(table.sealed.size(), length / kBlockTokens))});
  }
  Sequence& target = sequences_[to];
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const uint32_t block : copy.tables[g].open) {
      if (block != kNoBlock) groups_[g].open.share(block);
    }
    for (const uint32_t block : copy.tables[g].sealed) groups_[g].sealed.share(block);
  }
  target = std::move(copy);
}

// Those that no other sequence holds.
size_t Sequences::n_alone(const BlockPool& pool, const std::vector<uint32_t>& blocks) {
  return static_cast<size_t>(
      std::count_if(blocks.begin(), blocks.end(), [&](uint32_t b) { return b != kNoBlock && !pool.shared(b); }));
}

Sequences::Sequence& Sequences::restore(SequenceId id, std::vector<int32_t> positions,
                                        const std::vector<std::vector<bool>>& has_open) {
  drop_pending();
  const Sequence* before = find(id);
  const size_t n_sealed = positions.size() / kBlockTokens;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto require = [](const BlockPool& pool, size_t needed, size_t freed) {
      pool.require(needed - std::min(needed, freed));
    };
    const auto n_open = static_cast<size_t>(std::count(has_open[g].begin(), has_open[g].end(), true));
    const Table* table = before == nullptr ? nullptr : &before->tables[g];
    require(groups_[g].open, n_open, table == nullptr ? 0 : n_alone(groups_[g].open, table->open));
    if (groups_[g].sealing.seals())
      require(groups_[g].sealed, n_sealed, table == nullptr ? 0 : n_alone(groups_[g].sealed, table->sealed));
  }
  truncate(id, 0);
  Sequence& s = made(id);
  s.length = positions.size();
  s.positions = std::move(positions);
  for (size_t g = 0; g < groups_.size(); ++g) {
    Table& table = s.tables[g];
    table.open.assign(has_open[g].size(), kNoBlock);
    for (size_t b = 0; b < table.open.size(); ++b) {
      if (has_open[g][b]) table.open[b] = groups_[g].open.take();
    }
    while (groups_[g].sealing.seals() && table.sealed.size() < n_sealed) table.sealed.push_back(groups_[g].sealed.take());
  }
  return s;
}

void Sequences::own_blocks(Sequence& s, size_t first_block, size_t length) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    size_t n = 0;
    for (size_t b = first_block; b < blocks_for(length); ++b) n += groups_[g].open.shared(s.tables[g].open[b]) ? 1 : 0;
    groups_[g].open.require(n);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t b = first_block; b < blocks_for(length); ++b) own_block(groups_[g].open, s.tables[g].open[b]);
  }
}

}  // namespace kpd::cache
