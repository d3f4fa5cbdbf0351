// One rank's model over flat buffers of its own, for tests: from a spec, weights by formula or from
// a Hugging Face folder, gradients by name.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "optim/optim.h"

namespace rr::model {

// The one device of this test program, with torch's globals set on it; one thread, since tiny
// products on several would mostly wait for each other.
device::Device& test_device();

// A spec from the config.json of an oracle's folder.
plan::ModelSpec spec_of(const std::string& folder);
// A small dense spec to start from.
plan::ModelSpec small_spec();

at::Tensor tensor_of(const checkpoint::SafetensorsReader& reader, const std::string& name);

struct RigOptions {
  int pipeline = 1, stage = 0;
  int expert = 1, expert_rank = 0;
  std::int64_t micro_batch = 2;
  std::int64_t offload_layers = 0;  // > 0: activations of the first n layers leave
  std::int64_t min_elements = 1;
  Hooks hooks;
  std::unique_ptr<comm::Communicator> expert_group;  // for expert > 1
  offload::Store* store = nullptr;                   // instead of one on the test device
  bool with_optimizer = false;  // it owns the buffers then; betas and clip of the oracles
};

class Rig {
 public:
  explicit Rig(const plan::ModelSpec& spec, RigOptions options = {});
  ~Rig();

  // Deviations 0.02 by name and element; norms 1 + small, biases small: every weight matters.
  void draw_weights();
  void load(const std::string& folder);

  // Main gradients under our names, local shape.
  std::map<std::string, at::Tensor> gradients() const;
  std::map<std::string, at::Tensor> weights() const;
  // Under Hugging Face's names.
  std::map<std::string, at::Tensor> hf_gradients() const;
  std::map<std::string, at::Tensor> hf_weights() const;
  // The flat spans.
  const std::vector<BufferView>& buffers() const { return buffers_; }

  plan::Plan plan;
  plan::RankPlan rank;
  std::unique_ptr<offload::Store> store;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<Model> model;
  HfNames names = HfNames::common;

 private:
  std::map<std::string, at::Tensor> views(bool gradients) const;
  std::map<std::string, at::Tensor> in_hf(bool gradients) const;

  void allocate();

  std::unique_ptr<comm::World> world_;
  ThreadPool threads_{1};
  comm::Groups groups_;
  std::vector<BufferView> buffers_;
};

// ids [B, S]; labels below 0 are masked.
Tokens tokens_of(const at::Tensor& ids, const at::Tensor& labels);
// Tokens of a counter-based generator.
Tokens random_tokens(std::int64_t batch, std::int64_t seq, std::int64_t vocab, std::uint64_t seed);

// begin_step, forward, backward of one micro-batch on a one-stage rig.
void train_once(Rig& rig, const Tokens& tokens, double loss_scale = 1.0);

double max_difference(const at::Tensor& a, const at::Tensor& b);
bool same_bits(const at::Tensor& a, const at::Tensor& b);
bool same_bits(const std::map<std::string, at::Tensor>& a,
               const std::map<std::string, at::Tensor>& b);

std::string oracle(const std::string& folder);

}  // namespace rr::model
