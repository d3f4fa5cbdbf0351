// Builds a Plan without a recipe and the model on it.
#include "rig.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/random.h"

namespace rr::model {

device::Device& test_device() {
  static device::Device* device = [] {
    auto* made = device::make_cpu_device().release();
    install_torch_globals(*made, 1);
    return made;
  }();
  return *device;
}

std::string oracle(const std::string& folder) { return RR_TEST_DATA "/model/" + folder; }

plan::ModelSpec spec_of(const std::string& folder) {
  std::ifstream file(oracle(folder) + "/config.json");
  const auto config = nlohmann::json::parse(file);
  const auto get = [&](const char* key, std::int64_t initial) {
    return config.contains(key) && !config[key].is_null() ? config[key].get<std::int64_t>()
                                                          : initial;
  };
  plan::ModelSpec spec;
  spec.num_layers = get("num_hidden_layers", 0);
  spec.hidden = get("hidden_size", 0);
  spec.heads = get("num_attention_heads", 0);
  spec.query_groups = get("num_key_value_heads", spec.heads);
  spec.head_dim = get("head_dim", spec.hidden / spec.heads);
  spec.ffn = get("intermediate_size", 0);
  spec.vocab = get("vocab_size", 0);
  spec.padded_vocab = round_up(spec.vocab, 64);
  spec.seq_length = get("max_position_embeddings", 0);
  spec.norm_epsilon = config["rms_norm_eps"];
  spec.tied = config["tie_word_embeddings"];
  const std::string type = config["model_type"];
  spec.qk_norm = type.starts_with("qwen3") || type == "olmoe";
  spec.qk_norm_whole = type == "olmoe";
  const auto& rope = config["rope_parameters"];
  spec.rotary_base = rope["rope_theta"];
  if (rope["rope_type"] == "llama3") {
    spec.rope_scaling = {rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"],
                         rope["original_max_position_embeddings"]};
  }
  spec.layer_is_moe.assign(static_cast<std::size_t>(spec.num_layers), false);
  if (type == "qwen3" || type == "llama") return spec;
  spec.experts = get("num_local_experts", get("num_experts", 0));
  spec.experts_per_token = get("num_experts_per_tok", 0);
  spec.expert_ffn = get("moe_intermediate_size", spec.ffn);
  spec.router_pre_softmax = type != "mixtral" && !config["norm_topk_prob"].get<bool>();
  for (std::size_t i = 0; i < spec.layer_is_moe.size(); ++i) spec.layer_is_moe[i] = true;
  if (config.contains("mlp_only_layers")) {
    for (const int dense : config["mlp_only_layers"]) {
      spec.layer_is_moe[static_cast<std::size_t>(dense)] = false;
    }
  }
  return spec;
}

plan::ModelSpec small_spec() {
  plan::ModelSpec spec;
  spec.num_layers = 2;
  spec.hidden = 48;
  spec.heads = 4;
  spec.query_groups = 2;
  spec.head_dim = 16;
  spec.ffn = 64;
  spec.vocab = 101;
  spec.padded_vocab = 128;
  spec.seq_length = 32;
  spec.layer_is_moe.assign(2, false);
  return spec;
}

at::Tensor tensor_of(const checkpoint::SafetensorsReader& reader, const std::string& name) {
  const checkpoint::TensorInfo& info = reader.at(name);
  const auto type = info.dtype == DType::f32    ? at::kFloat
                    : info.dtype == DType::f64  ? at::kDouble
                    : info.dtype == DType::bf16 ? at::kBFloat16
                                                : at::kLong;
  RR_CHECK(info.dtype == DType::f32 || info.dtype == DType::f64 || info.dtype == DType::i64 ||
               info.dtype == DType::bf16,
           name);
  at::Tensor tensor = at::empty(info.shape, at::TensorOptions().dtype(type));
  std::memcpy(tensor.mutable_data_ptr(), info.data, static_cast<std::size_t>(info.bytes));
  return tensor;
}

Rig::Rig(const plan::ModelSpec& spec, RigOptions options) {
  device::Device& device = test_device();
  plan.model = spec;
  plan.topology.pipeline = options.pipeline;
  plan.topology.expert = options.expert;
  plan.topology.data = options.expert;
  plan.topology.world = options.pipeline * options.expert;
  plan.batch.micro_batch = options.micro_batch;
  plan.activations = {options.offload_layers > 0, options.offload_layers, options.min_elements,
                      false};
  plan.optimizer.beta2 = 0.95;
  plan::lay_out(plan);
  rank = plan::rank_plan(plan, options.stage * options.expert + options.expert_rank);
  world_ = comm::make_self_world();
  groups_ = comm::make_groups(*world_, plan::Topology{});
  if (options.expert_group != nullptr) {
    groups_.by_kind[static_cast<std::size_t>(plan::Group::expert)] =
        std::move(options.expert_group);
  }
  if (options.offload_layers > 0 && options.store == nullptr) {
    store = std::make_unique<offload::Store>(device, false);
    options.store = store.get();
  }
  if (options.with_optimizer) {
    optimizer = optim::make_optimizer({plan, rank, device, groups_, threads_});
  }
  allocate();
  model = std::make_unique<Model>(
      Environment{plan, rank, device, groups_, buffers_, options.store, options.hooks});
}

void Rig::allocate() {
  device::Device& device = test_device();
  const plan::StagePlan& stage = plan.stages[static_cast<std::size_t>(rank.stage)];
  for (std::size_t i = 0; i < stage.buffers.size(); ++i) {
    const plan::FlatBuffer& buffer = stage.buffers[i];
    if (optimizer) {
      const int index = static_cast<int>(i);
      buffers_.push_back({optimizer->weights(index), optimizer->gradients(index)});
      continue;
    }
    buffers_.push_back(
        {device.allocate(Pool::device, buffer.size * size_of(buffer.dtype), "weights"),
         device.allocate(Pool::device, buffer.size * size_of(DType::f32), "gradients")});
    // Whatever was there before a step must not matter.
    std::fill_n(buffers_.back().gradients.as<float>(), buffer.size, std::nanf(""));
  }
}

Rig::~Rig() {
  model.reset();
  if (optimizer) return;
  for (const BufferView& buffer : buffers_) {
    test_device().release(buffer.weights);
    test_device().release(buffer.gradients);
  }
}

std::map<std::string, at::Tensor> Rig::views(bool gradients) const {
  std::map<std::string, at::Tensor> result;
  const plan::StagePlan& stage = plan.stages[static_cast<std::size_t>(rank.stage)];
  for (const plan::Parameter& p : stage.parameters) {
    const BufferView& buffer = buffers_[static_cast<std::size_t>(p.buffer)];
    const DType type =
        gradients ? DType::f32 : stage.buffers[static_cast<std::size_t>(p.buffer)].dtype;
    std::byte* data = (gradients ? buffer.gradients : buffer.weights).data;
    result[p.name] =
        at::from_blob(data + p.offset * size_of(type), p.shape,
                      at::TensorOptions().dtype(type == DType::f32 ? at::kFloat : at::kBFloat16));
  }
  return result;
}

std::map<std::string, at::Tensor> Rig::weights() const { return views(false); }

std::map<std::string, at::Tensor> Rig::gradients() const {
  std::map<std::string, at::Tensor> copies;
  for (const auto& [name, view] : views(true)) copies[name] = view.clone();
  return copies;
}

std::map<std::string, at::Tensor> Rig::in_hf(bool gradients) const {
  std::map<std::string, at::Tensor> result;
  const auto ours = views(gradients);
  for (const plan::Parameter& p : plan.stages[static_cast<std::size_t>(rank.stage)].parameters) {
    for (HfPiece& piece : to_hf(plan, p, ours.at(p.name).to(at::kFloat), names)) {
      result[piece.name] = piece.value.clone();
    }
  }
  return result;
}
std::map<std::string, at::Tensor> Rig::hf_gradients() const { return in_hf(true); }
std::map<std::string, at::Tensor> Rig::hf_weights() const { return in_hf(false); }

void Rig::draw_weights() {
  for (const plan::Parameter& p : plan.stages[static_cast<std::size_t>(rank.stage)].parameters) {
    std::vector<float> values(static_cast<std::size_t>(p.size));
    const RandomStream random(1, p.init_name);
    const bool scale = p.init == plan::Init::ones;
    random.normal(static_cast<std::uint64_t>(plan::first_element(p, rank)), p.size,
                  p.shape.size() > 1 ? 0.12F : 0.2F, values.data());
    for (float& value : values) value += scale ? 1.0F : 0.0F;
    views(false).at(p.name).copy_(
        at::from_blob(values.data(), p.shape, at::TensorOptions().dtype(at::kFloat)));
  }
}

void Rig::load(const std::string& folder) {
  const checkpoint::SafetensorsReader reader(oracle(folder));
  names = folder.find("mixtral") != std::string::npos ? HfNames::mixtral : HfNames::common;
  const auto read = [&](const std::string& name) { return tensor_of(reader, name); };
  if (optimizer) {
    optimizer->import([&](const plan::Parameter& p, std::int64_t first, std::int64_t count,
                          float* out) { fill_from_hf(plan, p, first, count, out, read, names); });
    return;
  }
  const auto ours = weights();
  for (const plan::Parameter& p : plan.stages[static_cast<std::size_t>(rank.stage)].parameters) {
    std::vector<float> values(static_cast<std::size_t>(p.size));
    // In two parts: any range must do.
    const std::int64_t part = p.size / 3;
    const std::int64_t first = plan::first_element(p, rank);
    fill_from_hf(plan, p, first, part, values.data(), read, names);
    fill_from_hf(plan, p, first + part, p.size - part, values.data() + part, read, names);
    ours.at(p.name).copy_(
        at::from_blob(values.data(), p.shape, at::TensorOptions().dtype(at::kFloat)));
  }
}

Tokens tokens_of(const at::Tensor& ids, const at::Tensor& labels) {
  Tokens tokens;
  tokens.tokens = ids;
  tokens.labels = labels;
  tokens.loss_mask = labels.ge(0).to(at::kFloat);
  tokens.positions = at::arange(ids.size(1), at::kLong).expand(ids.sizes()).contiguous();
  return tokens;
}

Tokens random_tokens(std::int64_t batch, std::int64_t seq, std::int64_t vocab, std::uint64_t seed) {
  at::Tensor ids = at::empty({batch, seq + 1}, at::TensorOptions().dtype(at::kLong));
  const RandomStream random(seed, "tokens");
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    ids.mutable_data_ptr<std::int64_t>()[i] =
        random.bits(static_cast<std::uint64_t>(i)) % static_cast<std::uint32_t>(vocab);
  }
  return tokens_of(ids.narrow(1, 0, seq).contiguous(), ids.narrow(1, 1, seq).contiguous());
}

void train_once(Rig& rig, const Tokens& tokens, double loss_scale) {
  rig.model->begin_step();
  rig.model->forward(0, tokens, {}, loss_scale);
  rig.model->backward(0, {}, true);
}

double max_difference(const at::Tensor& a, const at::Tensor& b) {
  RR_CHECK(a.sizes() == b.sizes(), "shapes to compare");
  if (a.numel() == 0) return 0;
  return a.to(at::kDouble).sub(b.to(at::kDouble)).abs().max().item<double>();
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

bool same_bits(const std::map<std::string, at::Tensor>& a,
               const std::map<std::string, at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    if (!b.contains(name) || !same_bits(tensor, b.at(name))) return false;
  }
  return true;
}

}  // namespace rr::model
