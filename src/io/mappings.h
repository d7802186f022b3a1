// io: what the mappings of files share. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace kpd::io {

// More than this does not stay in memory of the process but goes into a file, where the system may write it back.
inline constexpr size_t kMaxHeldBytes = size_t{64} << 20;

// The table behind mapped_file_at(). Returns a slot for forget_mapping(), -1 if the table is full.
int register_mapping(const void* data, size_t size, const std::string& name);
void forget_mapping(int slot);

// A new file in the folder without a name, for reading and writing. Throws Error(kIo).
int open_unnamed(const std::string& folder);
// Takes the space of a file on the device. Throws Error(kIo): a full disk must not be found by SIGBUS.
void take_space(int fd, uint64_t size_bytes, const std::string& name);

}  // namespace kpd::io
