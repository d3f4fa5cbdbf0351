// Layers to stages, tensors to flat buffers, buffers to buckets.
#include <algorithm>
#include <map>

#include "plan/plan.h"
#include "plan/stage_parameters.h"

namespace rr::plan {

namespace {

constexpr std::int64_t kAlign = 64;  // elements: 256 bytes of f32

std::vector<int> equal_parts(std::int64_t layers, int parts) {
  RR_CHECK(layers % parts == 0, std::to_string(layers) + " layers");
  return std::vector<int>(static_cast<std::size_t>(parts), static_cast<int>(layers / parts));
}

// Which decoder layers each stage holds: part after part.
void assign_layers(Plan& plan, std::vector<int> layers_per_part) {
  const int stages = plan.topology.pipeline;
  const int parts = stages * plan.topology.chunks;
  if (layers_per_part.empty()) layers_per_part = equal_parts(plan.model.num_layers, parts);
  RR_CHECK(static_cast<int>(layers_per_part.size()) == parts, "layers per part");
  plan.stages.assign(static_cast<std::size_t>(stages), {});
  int layer = 1;
  for (int part = 0; part < parts; ++part) {
    StagePlan& stage = plan.stages[static_cast<std::size_t>(part % stages)];
    const int count = layers_per_part[static_cast<std::size_t>(part)];
    stage.chunk_layers.push_back(count);
    for (int i = 0; i < count; ++i) stage.layers.push_back(layer++);
  }
  RR_CHECK(layer == plan.model.num_layers + 1, "every layer has a stage");
  plan.stages.front().embedding = true;
  plan.stages.back().head = true;
}

}  // namespace

std::span<const int> layers_of_chunk(const StagePlan& stage, int chunk) {
  std::size_t begin = 0;
  for (int c = 0; c < chunk; ++c) {
    begin += static_cast<std::size_t>(stage.chunk_layers[static_cast<std::size_t>(c)]);
  }
  return std::span<const int>(stage.layers)
      .subspan(begin,
               static_cast<std::size_t>(stage.chunk_layers[static_cast<std::size_t>(chunk)]));
}

namespace {

// Layers of one buffer grouped into buckets. Walked from the last layer down, since that is the
// order in which gradients come: a bucket is closed when it has reached `target` elements.
std::vector<std::pair<int, int>> bucket_layers(const std::map<int, std::int64_t>& layer_elements,
                                               std::int64_t target) {
  std::vector<std::pair<int, int>> groups;  // [first, last], last group first
  std::int64_t filled = 0;
  for (auto it = layer_elements.rbegin(); it != layer_elements.rend(); ++it) {
    if (groups.empty() || filled >= target) {
      groups.emplace_back(it->first, it->first);
      filled = 0;
    }
    groups.back().first = it->first;
    filled += it->second;
  }
  std::reverse(groups.begin(), groups.end());
  return groups;
}

// Places the parameters of one kind in a buffer with index `index`.
FlatBuffer place(std::vector<Parameter>& parameters, bool expert, int index, DType dtype,
                 std::int64_t group_size, std::int64_t target) {
  std::map<int, std::int64_t> layer_elements;
  for (const Parameter& p : parameters) {
    if (p.expert == expert) layer_elements[p.layer] += round_up(p.size, kAlign);
  }
  FlatBuffer buffer;
  buffer.dtype = dtype;
  buffer.expert = expert;
  for (const auto& [first, last] : bucket_layers(layer_elements, target)) {
    Bucket bucket;
    bucket.begin = buffer.size;
    bucket.first_layer = first;
    bucket.last_layer = last;
    std::int64_t offset = bucket.begin;
    for (Parameter& p : parameters) {
      if (p.expert != expert || p.layer < first || p.layer > last) continue;
      p.buffer = index;
      p.offset = offset;
      offset += round_up(p.size, kAlign);
    }
    bucket.end = bucket.begin + round_up(offset - bucket.begin, kAlign * group_size);
    buffer.size = bucket.end;
    buffer.buckets.push_back(bucket);
  }
  return buffer;
}

}  // namespace

std::int64_t default_bucket_elements(const Topology& topology) {
  return std::max<std::int64_t>(40'000'000, std::int64_t{1'000'000} * topology.size(Group::data));
}

void lay_out(Plan& plan, std::int64_t bucket_elements, const std::vector<int>& layers_per_part) {
  const Topology& topology = plan.topology;
  if (bucket_elements == 0) bucket_elements = default_bucket_elements(topology);
  assign_layers(plan, layers_per_part);
  for (StagePlan& stage : plan.stages) {
    stage.parameters = stage_parameters(plan.model, topology, stage);
    const auto has = [&](bool expert) {
      return std::any_of(stage.parameters.begin(), stage.parameters.end(),
                         [&](const Parameter& p) { return p.expert == expert; });
    };
    for (const bool expert : {false, true}) {
      if (!has(expert)) continue;
      const int group = topology.size(expert ? Group::expert_data : Group::data);
      stage.buffers.push_back(place(stage.parameters, expert,
                                    static_cast<int>(stage.buffers.size()), plan.model.compute,
                                    group, bucket_elements));
    }
    for (const Parameter& p : stage.parameters) {
      if (!p.duplicate) stage.num_parameters += p.size;
    }
  }
  plan.total_parameters = count_parameters(plan.model);
  plan.active_parameters = count_active_parameters(plan.model);
  plan.flops_per_token = count_flops_per_token(plan.model);
}

}  // namespace rr::plan
