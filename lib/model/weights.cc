// Views of the flat buffers by parameter name.
#include "model/weights.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace rr::model {

at::ScalarType scalar_type(DType type) {
  RR_CHECK(type == DType::f32 || type == DType::bf16, name_of(type));
  return type == DType::f32 ? at::kFloat : at::kBFloat16;
}

const void* Weight::data(std::int64_t piece) const {
  return static_cast<const char*>(value.const_data_ptr()) +
         piece * piece_size() * static_cast<std::int64_t>(value.element_size());
}

GradientOut Weight::take(std::int64_t piece) {
  char& first = fresh[static_cast<std::size_t>(piece)];
  const GradientOut out{gradient.mutable_data_ptr<float>() + piece * piece_size(), first != 0};
  first = 0;
  return out;
}

void Weight::zero_if_fresh() {
  for (std::int64_t piece = 0; piece < pieces(); ++piece) {
    if (fresh[static_cast<std::size_t>(piece)] == 0) continue;
    std::fill_n(take(piece).data, piece_size(), 0.0F);
  }
}

Weights::Weights(const plan::StagePlan& stage, const std::vector<BufferView>& buffers) {
  RR_CHECK(buffers.size() == stage.buffers.size(), "one view for each flat buffer");
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const plan::FlatBuffer& buffer = stage.buffers[i];
    RR_CHECK(buffers[i].weights.bytes == buffer.size * size_of(buffer.dtype), "size of weights");
    RR_CHECK(buffers[i].gradients.bytes == buffer.size * size_of(DType::f32), "size of gradients");
  }
  for (const plan::Parameter& parameter : stage.parameters) {
    const auto index = static_cast<std::size_t>(parameter.buffer);
    const DType type = stage.buffers[index].dtype;
    Weight weight;
    weight.plan = &parameter;
    weight.value = at::from_blob(buffers[index].weights.data + parameter.offset * size_of(type),
                                 parameter.shape, at::TensorOptions().dtype(scalar_type(type)));
    weight.gradient =
        at::from_blob(buffers[index].gradients.data + parameter.offset * size_of(DType::f32),
                      parameter.shape, at::TensorOptions().dtype(at::kFloat));
    weight.fresh.assign(parameter.expert ? static_cast<std::size_t>(parameter.shape[0]) : 1, 1);
    by_name_.emplace(parameter.name, std::move(weight));
  }
}

Weight* Weights::find(const std::string& name) {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &found->second;
}

Weight& Weights::at(const std::string& name) {
  Weight* weight = find(name);
  RR_CHECK(weight != nullptr, name);
  return *weight;
}

void Weights::begin_step() {
  for (auto& [name, weight] : by_name_) std::fill(weight.fresh.begin(), weight.fresh.end(), 1);
}

void Weights::finish_layer(int layer) {
  for (auto& [name, weight] : by_name_) {
    if (weight.plan->layer == layer) weight.zero_if_fresh();
  }
}

}  // namespace rr::model
