// Where a rank stands in the grid of ranks, and with whom.
#include <algorithm>

#include "plan/plan.h"

namespace rr::plan {

const char* name_of(Group group) {
  switch (group) {
    case Group::world:
      return "world";
    case Group::tensor:
      return "tensor";
    case Group::context:
      return "context";
    case Group::data:
      return "data";
    case Group::pipeline:
      return "pipeline";
    case Group::expert:
      return "expert";
    case Group::expert_data:
      return "expert data";
    case Group::embedding:
      return "embedding";
    case Group::model:
      return "model";
  }
  return "?";
}

Coordinates Topology::coordinates(int rank) const {
  RR_CHECK(rank >= 0 && rank < world, std::to_string(rank));
  Coordinates at;
  const int in_stage = rank % (world / pipeline);
  at.pipeline = rank / (world / pipeline);
  at.tensor = in_stage % tensor;
  at.context = in_stage / tensor % context;
  at.data = in_stage / (tensor * context);
  at.expert_tensor = in_stage % expert_tensor;
  at.expert = in_stage / expert_tensor % expert;
  at.expert_data = in_stage / (expert_tensor * expert);
  return at;
}

int Topology::size(Group group) const {
  switch (group) {
    case Group::world:
      return world;
    case Group::tensor:
      return tensor;
    case Group::context:
      return context;
    case Group::data:
      return context * data;
    case Group::pipeline:
      return pipeline;
    case Group::expert:
      return expert;
    case Group::expert_data:
      return expert_data;
    case Group::embedding:
      return pipeline > 1 ? 2 : 1;
    case Group::model:
      return tensor * pipeline;
  }
  return 1;
}

namespace {

// `count` ranks that start at `first` and lie `stride` apart.
std::vector<int> strided(int first, int stride, int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) ranks[static_cast<std::size_t>(i)] = first + i * stride;
  return ranks;
}

}  // namespace

std::vector<int> Topology::members(Group group, int rank) const {
  const Coordinates at = coordinates(rank);
  const int stage_size = world / pipeline;
  switch (group) {
    case Group::world:
      return strided(0, 1, world);
    case Group::tensor:
      return strided(rank - at.tensor, 1, tensor);
    case Group::context:
      return strided(rank - at.context * tensor, tensor, context);
    case Group::data:
      return strided(at.pipeline * stage_size + at.tensor, tensor, context * data);
    case Group::pipeline:
      return strided(rank % stage_size, stage_size, pipeline);
    case Group::expert:
      return strided(rank - at.expert * expert_tensor, expert_tensor, expert);
    case Group::expert_data:
      return strided(rank - at.expert_data * expert * expert_tensor, expert * expert_tensor,
                     expert_data);
    case Group::embedding: {
      const bool inner = at.pipeline > 0 && at.pipeline < pipeline - 1;
      if (inner || pipeline == 1) return {rank};
      return {rank % stage_size, world - stage_size + rank % stage_size};
    }
    case Group::model: {
      std::vector<int> ranks;
      for (int stage = 0; stage < pipeline; ++stage) {
        const auto part = strided(stage * stage_size + rank % stage_size - at.tensor, 1, tensor);
        ranks.insert(ranks.end(), part.begin(), part.end());
      }
      return ranks;
    }
  }
  return {rank};
}

}  // namespace rr::plan
