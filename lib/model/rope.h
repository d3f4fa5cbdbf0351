// Tables of the rotary embedding. Private to the room.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace rr::model {

// fp32 [positions, rotary / 2]. The angle is position * frequency rounded to fp32, as the
// reference computes it, so far positions agree with it.
struct RopeTables {
  std::int64_t rotary = 0;  // rotated dimensions of a head; 0: no rotary embedding
  std::int64_t positions = 0;
  std::vector<float> cosines, sines;
};
// The first rotary_percent of the head's dimensions, with Llama 3's frequency scaling if any.
RopeTables make_rope_tables(const plan::ModelSpec& model, std::int64_t positions);

}  // namespace rr::model
