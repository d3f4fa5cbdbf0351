// Private: what the back ends of this room share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/comm.h"

namespace rr::comm {

// A group of one: no messages.
std::unique_ptr<Communicator> make_self_group();

// Checks of arguments that only our own code can get wrong.
void check_counts(std::span<const std::int64_t> counts, std::size_t bytes, int size);
void check_member(int member, int size);

// Before a process ends without its destructors.
void flush_output();

}  // namespace rr::comm
