// The fixed part of an .idx file, little-endian like everything in it (megatron.md 9.2). After it:
// int32 lengths and int64 byte offsets of the sequences, int64 document boundaries in sequences.
#pragma once

#include <cstdint>

namespace rr::data {

inline constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
inline constexpr std::int64_t kVersionAt = 9;         // u64, 1
inline constexpr std::int64_t kTypeAt = 17;           // u8, dtype code
inline constexpr std::int64_t kSequenceCountAt = 18;  // u64
inline constexpr std::int64_t kDocumentCountAt = 26;  // u64, documents + 1
inline constexpr std::int64_t kHeaderBytes = 34;

}  // namespace rr::data
