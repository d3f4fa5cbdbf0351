// Nodes for embedding, norms, linear layers and activations.
#include "model/functions.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "model/node.h"
#include "model/parallel.h"

namespace rr::model {

at::Tensor empty(at::IntArrayRef sizes, DType type) {
  return at::empty(sizes, at::TensorOptions().dtype(scalar_type(type)));
}

// ---- embedding --------------------------------------------------------------------------------

namespace {

struct EmbeddingNode final : Node {
  DType type;
  at::Tensor tokens, positions;
  Weight* words;
  Weight* learned;
  std::function<void(int)> layer_done;

  static void add(DType type, const at::Tensor& dy, const at::Tensor& ids, Weight& weight) {
    const GradientOut out = weight.take();
    if (out.overwrite) std::fill_n(out.data, weight.plan->size, 0.0F);
    scatter_add_rows(type, dy.size(0), dy.size(1), dy.const_data_ptr(),
                     ids.const_data_ptr<std::int64_t>(), out.data);
  }
  variable_list apply(variable_list&& grads) override {
    add(type, grads[0], tokens, *words);
    if (learned != nullptr) add(type, grads[0], positions, *learned);
    layer_done(0);
    return {};
  }
};

void add_rows_of(DType type, const at::Tensor& ids, const Weight& weight, at::Tensor& y) {
  const at::Tensor rows = empty(y.sizes(), type);
  const at::Tensor index = ids.to(at::kInt);
  gather_rows(type, y.size(0), y.size(1), weight.data(), index.const_data_ptr<std::int32_t>(),
              rows.data_ptr());
  const Fp32 acc(y, type);
  linear_epilogue(type, y.size(0), y.size(1), acc.data(), nullptr, rows.const_data_ptr(),
                  y.data_ptr());
}

}  // namespace

at::Tensor embedding(const Run& run, Weight& words, Weight* positions) {
  const std::int64_t hidden = words.value.size(1);
  at::Tensor y = empty({run.rows(), hidden}, run.type);
  const at::Tensor ids = run.tokens->tokens.to(at::kInt);
  gather_rows(run.type, run.rows(), hidden, words.data(), ids.const_data_ptr<std::int32_t>(),
              y.data_ptr());
  if (positions != nullptr) add_rows_of(run.type, run.tokens->positions, *positions, y);
  if (!run.training) return y;
  auto node = make_node<EmbeddingNode>();
  node->type = run.type;
  node->tokens = run.tokens->tokens;
  node->positions = run.tokens->positions;
  node->words = &words;
  node->learned = positions;
  node->layer_done = run.layer_done;
  set_output(y, node);
  return y;
}

// ---- norms ------------------------------------------------------------------------------------

namespace {

NormShape shape_of(const Run& run, const at::Tensor& x, const NormWeights& weights) {
  return {run.type, x.size(0), x.size(1), weights.center, weights.epsilon};
}

struct NormNode final : Node {
  NormShape shape;
  NormWeights weights;
  SavedVariable x;
  at::Tensor rstd, mean;
  int done;
  std::function<void(int)> layer_done;

  variable_list apply(variable_list&& grads) override {
    const at::Tensor input = x.unpack();
    at::Tensor dx = empty(input.sizes(), shape.type);
    const at::Tensor partials = scratch(partial_rows(shape.rows) * 2 * shape.width);
    NormBackward args{};
    args.shape = shape;
    args.x = input.const_data_ptr();
    args.weight = weights.weight->data();
    args.rstd = rstd.const_data_ptr<float>();
    args.mean = shape.center ? mean.const_data_ptr<float>() : nullptr;
    args.dy = grads[0].const_data_ptr();
    if (grads.size() > 1) args.residual = grads[1].const_data_ptr();
    args.dx = dx.data_ptr();
    args.dweight = weights.weight->take();
    if (shape.center) args.dbias = weights.bias->take();
    args.scratch = partials.mutable_data_ptr<float>();
    norm_backward(args);
    if (done >= 0) layer_done(done);
    return {dx};
  }
  void release_variables() override { x.reset_data(); }
};

Split norm_outputs(const Run& run, const at::Tensor& x, const NormWeights& weights, int layer_done,
                   bool with_residual) {
  const NormShape shape = shape_of(run, x, weights);
  Split out;
  out.normal = empty(x.sizes(), run.type);
  const at::Tensor rstd = scratch(shape.rows);
  const at::Tensor mean = shape.center ? scratch(shape.rows) : at::Tensor();
  NormForward args{};
  args.shape = shape;
  args.x = x.const_data_ptr();
  args.weight = weights.weight->data();
  args.bias = shape.center ? weights.bias->data() : nullptr;
  args.y = out.normal.data_ptr();
  args.rstd = rstd.mutable_data_ptr<float>();
  args.mean = shape.center ? mean.mutable_data_ptr<float>() : nullptr;
  norm_forward(args);
  if (with_residual) out.residual = x.detach();
  if (!run.training) return out;
  auto node = make_node<NormNode>(x);
  node->shape = shape;
  node->weights = weights;
  node->x = save(x);
  node->rstd = rstd;
  node->mean = mean;
  node->done = layer_done;
  node->layer_done = run.layer_done;
  set_output(out.normal, node);
  if (with_residual) set_output(out.residual, node);
  return out;
}

}  // namespace

Split norm_split(const Run& run, const at::Tensor& x, const NormWeights& weights, int layer_done) {
  return norm_outputs(run, x, weights, layer_done, true);
}

at::Tensor norm(const Run& run, const at::Tensor& x, const NormWeights& weights, int layer_done) {
  return norm_outputs(run, x, weights, layer_done, false).normal;
}

// ---- linear -----------------------------------------------------------------------------------

namespace {

struct LinearNode final : Node {
  DType type;
  SavedVariable x;
  Weight* weight;
  Weight* bias;
  bool has_residual;

  variable_list apply(variable_list&& grads) override {
    const at::Tensor input = x.unpack();
    const at::Tensor& dy = grads[0];
    const std::int64_t rows = dy.size(0), out = dy.size(1), in = input.size(1);
    const Fp32 dy32(dy, type);
    at::Tensor dx = empty(input.sizes(), type);
    {
      const Fp32 w32(weight->value, type);
      const at::Tensor acc = type == DType::f32 ? dx : emulation_scratch(type, rows * in);
      gemm(rows, in, out, 1.0F, {dy32.data(), out}, {w32.data(), in}, 0.0F,
           acc.mutable_data_ptr<float>(), in);
      if (type != DType::f32) round_to_bf16(acc.const_data_ptr<float>(), dx.data_ptr(), rows * in);
    }
    const Fp32 x32(input, type);
    const GradientOut dw = weight->take();
    gemm(out, in, rows, 1.0F, {dy32.data(), out, true}, {x32.data(), in},
         dw.overwrite ? 0.0F : 1.0F, dw.data, in);
    if (bias != nullptr) {
      const at::Tensor partials = scratch(partial_rows(rows) * out);
      column_sums(type, rows, out, dy.const_data_ptr(), bias->take(),
                  partials.mutable_data_ptr<float>());
    }
    if (has_residual) return {dx, dy};
    return {dx};
  }
  void release_variables() override { x.reset_data(); }
};

}  // namespace

at::Tensor linear(const Run& run, const at::Tensor& x, Weight& weight, Weight* bias,
                  const at::Tensor& residual) {
  const std::int64_t rows = x.size(0), in = x.size(1), out = weight.value.size(0);
  at::Tensor y = empty({rows, out}, run.type);
  const bool direct = run.type == DType::f32;
  {
    const Fp32 x32(x, run.type);
    const Fp32 w32(weight.value, run.type);
    const at::Tensor acc = direct ? y : emulation_scratch(run.type, rows * out);
    gemm(rows, out, in, 1.0F, {x32.data(), in}, {w32.data(), in, true}, 0.0F,
         acc.mutable_data_ptr<float>(), out);
    if (!direct || bias != nullptr || residual.defined()) {
      linear_epilogue(run.type, rows, out, acc.const_data_ptr<float>(),
                      bias == nullptr ? nullptr : bias->data(),
                      residual.defined() ? residual.const_data_ptr() : nullptr, y.data_ptr());
    }
  }
  if (!run.training) return y;
  auto node = residual.defined() ? make_node<LinearNode>(x, residual) : make_node<LinearNode>(x);
  node->type = run.type;
  node->x = save(x);
  node->weight = &weight;
  node->bias = bias;
  node->has_residual = residual.defined();
  set_output(y, node);
  return y;
}

// ---- activation -------------------------------------------------------------------------------

namespace {

struct ActivationNode final : Node {
  ActivationShape shape;
  SavedVariable h;
  SavedVariable probability;
  bool weighted;

  variable_list apply(variable_list&& grads) override {
    const at::Tensor input = h.unpack();
    const at::Tensor p = weighted ? probability.unpack() : at::Tensor();
    at::Tensor dh = empty(input.sizes(), shape.type);
    at::Tensor dp = weighted ? scratch(shape.rows) : at::Tensor();
    activation_backward(shape, input.const_data_ptr(),
                        weighted ? p.const_data_ptr<float>() : nullptr, grads[0].const_data_ptr(),
                        dh.data_ptr(), weighted ? dp.mutable_data_ptr<float>() : nullptr);
    if (weighted) return {dh, dp};
    return {dh};
  }
  void release_variables() override {
    h.reset_data();
    probability.reset_data();
  }
};

}  // namespace

at::Tensor activation(const Run& run, const at::Tensor& h, const at::Tensor& probability,
                      bool gated, bool gelu) {
  const ActivationShape shape{run.type, h.size(0), h.size(1) / (gated ? 2 : 1), gated, gelu};
  at::Tensor y = empty({shape.rows, shape.width}, run.type);
  const bool weighted = probability.defined();
  activation_forward(shape, h.const_data_ptr(),
                     weighted ? probability.const_data_ptr<float>() : nullptr, y.data_ptr());
  if (!run.training) return y;
  auto node = weighted ? make_node<ActivationNode>(h, probability) : make_node<ActivationNode>(h);
  node->shape = shape;
  node->h = save(h);
  node->weighted = weighted;
  if (weighted) node->probability = save(probability);
  set_output(y, node);
  return y;
}

}  // namespace rr::model
