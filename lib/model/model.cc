// One stage's forward and backward, and the graphs that live between them.
#include "model/model.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "model/layers.h"
#include "model/saved_tensors.h"

namespace rr::model {

namespace {

const plan::StagePlan& stage_of(const Environment& environment) {
  return environment.plan.stages[static_cast<std::size_t>(environment.rank.stage)];
}

std::optional<std::set<int>> layers_that_leave(const Environment& environment) {
  const plan::ActivationOffloadPlan& plan = environment.plan.activations;
  if (environment.store == nullptr || !plan.enabled || plan.layers == 0) return {};
  const std::vector<int>& layers = stage_of(environment).layers;
  const auto count = std::min(static_cast<std::int64_t>(layers.size()), plan.layers);
  return std::set<int>(layers.begin(), layers.begin() + count);
}

at::Tensor dense(const at::Tensor& tensor, at::ScalarType type, at::IntArrayRef sizes,
                 const char* what) {
  RR_CHECK(tensor.defined() && tensor.sizes() == sizes, std::string("shape of ") + what);
  return tensor.to(type).contiguous();
}

// The kernels index with these values without looking.
void check_range(const at::Tensor& ids, std::int64_t end, const char* what) {
  const auto* begin = ids.const_data_ptr<std::int64_t>();
  const auto [least, most] = std::minmax_element(begin, begin + ids.numel());
  RR_CHECK(*least >= 0 && *most < end, what);
}

}  // namespace

struct Model::Impl {
  explicit Impl(Environment e)
      : environment(std::move(e)),
        stage(stage_of(environment)),
        weights(stage, environment.buffers),
        decoder(environment.plan.model, stage, weights, environment.groups[plan::Group::expert]) {
    if (auto layers = layers_that_leave(environment)) {
      saved.emplace(*environment.store, std::move(*layers),
                    environment.plan.activations.min_elements);
    }
    for (const DecoderLayer& layer : decoder.layers()) auxiliary.moe_layers += layer.moe ? 1 : 0;
  }
  // Graphs hold pieces of `saved`.
  ~Impl() { graphs.clear(); }

  // What is kept of a micro-batch from its forward to its backward.
  struct Graph {
    at::Tensor input;  // leaf; undefined on the first stage
    torch::autograd::Edge output;
    std::int64_t output_sizes[2] = {0, 0};
  };

  Run prepare(const Tokens& given, const at::Tensor& input, Tokens& tokens) const;
  at::Tensor run_layers(const Run& run, int micro_batch, at::Tensor x);
  void layer_done(int micro_batch, int layer);
  void before_layer(int layer) const {
    if (environment.hooks.before_layer) environment.hooks.before_layer(layer);
  }
  int head_layer() const { return static_cast<int>(environment.plan.model.num_layers) + 1; }

  Environment environment;
  const plan::StagePlan& stage;
  Weights weights;
  Decoder decoder;
  std::optional<SavedTensors> saved;
  std::map<int, Graph> graphs;
  bool last = false;  // the backward that runs is the last of its step
  Loss loss;
  AuxiliaryLosses auxiliary;
  bool keep_logits = false;
  at::Tensor logits;
};

// Checks shapes, and fills what a stage without data knows from the Plan.
Run Model::Impl::prepare(const Tokens& given, const at::Tensor& input, Tokens& tokens) const {
  const plan::ModelSpec& model = environment.plan.model;
  Run run;
  run.type = model.compute;
  if (given.tokens.defined() || given.labels.defined()) {
    const at::Tensor& any = given.tokens.defined() ? given.tokens : given.labels;
    run.batch = any.size(0);
    run.seq = any.size(1);
  } else {
    run.seq = model.seq_length;
    run.batch = input.size(0) / run.seq;
  }
  const std::int64_t sizes[] = {run.batch, run.seq};
  if (stage.embedding) {
    tokens.tokens = dense(given.tokens, at::kLong, sizes, "tokens");
    check_range(tokens.tokens, model.vocab, "token ids in the vocabulary");
  }
  if (stage.head) {
    tokens.labels = dense(given.labels, at::kLong, sizes, "labels");
    tokens.loss_mask = dense(given.loss_mask, at::kFloat, sizes, "loss_mask");
  }
  if (given.positions.defined()) {
    tokens.positions = dense(given.positions, at::kLong, sizes, "positions");
  } else {
    // A stage without data would take all tokens for one document.
    RR_CHECK(
        !environment.plan.data.reset_position_ids && !environment.plan.data.reset_attention_mask,
        "positions and documents of every stage");
    tokens.positions = at::arange(run.seq, at::kLong).expand(sizes).contiguous();
  }
  check_range(tokens.positions, model.seq_length, "positions in the planned sequence");
  if (given.document_starts.defined()) {
    tokens.document_starts = dense(given.document_starts, at::kLong, sizes, "document_starts");
    check_range(tokens.document_starts, run.seq, "document starts in the sequence");
  }
  RR_CHECK(run.seq <= model.seq_length, "a sequence longer than planned");
  RR_CHECK(stage.embedding != input.defined(), "only the first stage has no input");
  run.tokens = &tokens;
  return run;
}

at::Tensor Model::Impl::run_layers(const Run& run, int micro_batch, at::Tensor x) {
  AuxiliaryLosses losses;
  if (stage.embedding) {
    before_layer(0);
    x = decoder.embed(run);
  }
  for (const DecoderLayer& layer : decoder.layers()) {
    before_layer(layer.id);
    if (run.training && saved) saved->begin_layer(micro_batch, layer.id);
    x = decoder.forward(run, layer, x, losses);
    if (run.training && saved) saved->end_layer();
  }
  if (run.training) {
    auxiliary.load_balancing += losses.load_balancing;
    auxiliary.z += losses.z;
  }
  if (!stage.head) return x;
  before_layer(head_layer());
  return decoder.head(run, x, loss, keep_logits && !run.training ? &logits : nullptr);
}

void Model::Impl::layer_done(int micro_batch, int layer) {
  if (saved) {
    saved->drop(micro_batch, layer);
    saved->before_backward(micro_batch, layer - 1);
  }
  if (!last) return;
  weights.finish_layer(layer);
  if (environment.hooks.gradients_ready) environment.hooks.gradients_ready(layer);
}

Model::Model(Environment environment) : impl_(std::make_unique<Impl>(std::move(environment))) {}
Model::~Model() = default;

void Model::begin_step() {
  impl_->weights.begin_step();
  const int moe_layers = impl_->auxiliary.moe_layers;
  impl_->auxiliary = {};
  impl_->auxiliary.moe_layers = moe_layers;
}

at::Tensor Model::forward(int micro_batch, const Tokens& given, const at::Tensor& input,
                          double loss_scale) {
  RR_CHECK(!impl_->graphs.contains(micro_batch), "a micro-batch with a live graph");
  Tokens tokens;
  Run run = impl_->prepare(given, input, tokens);
  run.training = true;
  run.loss_scale = loss_scale;
  run.layer_done = [impl = impl_.get(), micro_batch](int layer) {
    impl->layer_done(micro_batch, layer);
  };
  Impl::Graph graph;
  if (input.defined()) graph.input = input.detach().requires_grad_(true);
  const at::AutoGradMode with_graph(true);
  const at::Tensor output = impl_->run_layers(run, micro_batch, graph.input);
  graph.output = torch::autograd::impl::gradient_edge(output);
  for (std::int64_t d = 0; d < output.dim(); ++d) graph.output_sizes[d] = output.size(d);
  impl_->graphs.emplace(micro_batch, std::move(graph));
  return impl_->stage.head ? at::Tensor() : output.detach();
}

at::Tensor Model::backward(int micro_batch, const at::Tensor& grad_output, bool last) {
  const auto found = impl_->graphs.find(micro_batch);
  RR_CHECK(found != impl_->graphs.end(), "backward without its forward");
  // Taken out first: whatever happens, the graph is gone afterwards.
  const Impl::Graph graph = std::move(impl_->graphs.extract(found).mapped());
  at::Tensor gradient = grad_output;
  if (impl_->stage.head) {
    gradient = at::ones({}, at::TensorOptions().dtype(at::kFloat));
  } else {
    const std::int64_t sizes[] = {graph.output_sizes[0], graph.output_sizes[1]};
    gradient = dense(grad_output, scalar_type(impl_->environment.plan.model.compute), sizes,
                     "the output's gradient");
  }
  impl_->last = last;
  if (impl_->saved) {
    const int top = impl_->stage.head ? impl_->head_layer() : impl_->stage.layers.back();
    impl_->saved->before_backward(micro_batch, top);
  }
  torch::autograd::Engine::get_default_engine().execute({graph.output}, {gradient},
                                                        /*keep_graph=*/false,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
  return graph.input.defined() ? graph.input.grad() : at::Tensor();
}

at::Tensor Model::evaluate(const Tokens& given, const at::Tensor& input) {
  Tokens tokens;
  const Run run = impl_->prepare(given, input, tokens);
  const at::NoGradGuard without_graph;
  const at::Tensor output = impl_->run_layers(run, 0, input.defined() ? input.contiguous() : input);
  return impl_->stage.head ? at::Tensor() : output;
}

Loss Model::loss() const { return impl_->loss; }
void Model::keep_logits(bool keep) { impl_->keep_logits = keep; }
at::Tensor Model::logits() const { return impl_->logits; }
AuxiliaryLosses Model::auxiliary_losses() const { return impl_->auxiliary; }

}  // namespace rr::model
