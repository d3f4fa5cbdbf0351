// How decoder layers are dealt to pipeline stages.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "plan/from_config.h"

namespace rr::plan {

namespace {

[[noreturn]] void refuse_layout(const std::string& layout, const std::string& what) {
  throw UsageError(Problem{.key = "model.pipeline_model_parallel_layout",
                           .what = layout + ": " + what,
                           .remedy = "Write parts such as Et*3|(tt|)*6L: E embedding, t layer, "
                                     "L loss, | between stages, *n repeats."});
}

// Writes out every "x*n" and "(...)*n"; parentheses do not nest.
std::string expand(const std::string& layout) {
  std::string text;
  for (std::size_t i = 0; i < layout.size();) {
    std::string unit(1, layout[i]);
    if (layout[i] == '(') {
      const std::size_t close = layout.find(')', i);
      if (close == std::string::npos) refuse_layout(layout, "a ( without its ).");
      unit = layout.substr(i + 1, close - i - 1);
      i = close;
    }
    ++i;
    int times = 1;
    if (i < layout.size() && layout[i] == '*') {
      std::size_t end = i + 1;
      while (end < layout.size() && layout[end] >= '0' && layout[end] <= '9') ++end;
      if (end == i + 1 || end > i + 5) refuse_layout(layout, "* needs a number up to 9999.");
      times = std::stoi(layout.substr(i + 1, end - i - 1));
      i = end;
    }
    for (int n = 0; n < times; ++n) text += unit;
  }
  return text;
}

}  // namespace

std::vector<int> layers_of_layout(const std::string& layout) {
  std::vector<int> counts = {0};
  for (const char c : expand(layout)) {
    if (c == '|') {
      counts.push_back(0);
    } else if (c == 't') {
      ++counts.back();
    } else if (c != 'E' && c != 'L' && c != 'm') {
      refuse_layout(layout, fmt::format("'{}' is not a part of a model.", c));
    }
  }
  return counts;
}

namespace {

std::vector<int> layers_from_layout(const std::string& layout, const Topology& topology) {
  std::vector<int> parts = layers_of_layout(layout);
  if (static_cast<int>(parts.size()) != topology.pipeline * topology.chunks) {
    refuse_layout(layout, fmt::format("{} parts for {} stages of {} chunks.", parts.size(),
                                      topology.pipeline, topology.chunks));
  }
  return parts;
}

// First and last stage by hand, the others alike; a stage's layers fall equally into its chunks.
std::vector<int> layers_by_ends(const recipe::Model& model, const Topology& topology) {
  const int stages = topology.pipeline, chunks = topology.chunks;
  const auto first = model.num_layers_in_first_pipeline_stage;
  const auto last = model.num_layers_in_last_pipeline_stage;
  const int middle = stages - (first ? 1 : 0) - (last ? 1 : 0);
  const int left = static_cast<int>(model.num_layers - first.value_or(0) - last.value_or(0));
  std::vector<int> parts(static_cast<std::size_t>(stages * chunks),
                         middle > 0 ? left / middle / chunks : 0);
  for (int c = 0; c < chunks; ++c) {
    const auto begin = static_cast<std::size_t>(c * stages);
    if (first) parts[begin] = static_cast<int>(*first) / chunks;
    if (last)
      parts[begin + static_cast<std::size_t>(stages) - 1] = static_cast<int>(*last) / chunks;
  }
  return parts;
}

std::vector<int> equal_layers(const recipe::Model& model, const Topology& topology) {
  const int before = model.account_for_embedding_in_pipeline_split ? 1 : 0;
  const int after = model.account_for_loss_in_pipeline_split ? 1 : 0;
  const int count = topology.pipeline * topology.chunks;
  std::vector<int> parts(static_cast<std::size_t>(count),
                         (static_cast<int>(model.num_layers) + before + after) / count);
  parts.front() -= before;
  parts.back() -= after;
  return parts;
}

}  // namespace

std::vector<int> split_layers(const recipe::Model& model, const Topology& topology) {
  const bool by_ends =
      model.num_layers_in_first_pipeline_stage || model.num_layers_in_last_pipeline_stage;
  const std::vector<int> parts =
      model.pipeline_model_parallel_layout
          ? layers_from_layout(*model.pipeline_model_parallel_layout, topology)
      : by_ends ? layers_by_ends(model, topology)
                : equal_layers(model, topology);
  const int sum = std::accumulate(parts.begin(), parts.end(), 0);
  if (sum != model.num_layers || *std::min_element(parts.begin(), parts.end()) < 0) {
    throw UsageError(Problem{
        .key = "model.num_layers",
        .what = fmt::format("{} layers do not fall into {} pipeline stages of {} chunk{}: {} would "
                            "be placed.",
                            model.num_layers, topology.pipeline, topology.chunks,
                            topology.chunks == 1 ? "" : "s", sum),
        .remedy = fmt::format("Use {} layers, or set num_layers_in_first_pipeline_stage.", sum)});
  }
  return parts;
}

}  // namespace rr::plan
