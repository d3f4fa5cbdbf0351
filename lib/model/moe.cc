// Nodes of the mixture of experts.
#include "model/moe.h"

#include <algorithm>

#include "model/node.h"
#include "model/parallel.h"

namespace rr::model {

// ---- router and dispatch ------------------------------------------------------------------------

namespace {

struct DispatchNode final : Node {
  DType type;
  RouterShape shape;
  Routing routing;
  double loss_scale;
  Weight* router;
  SavedVariable x, logits;
  std::shared_ptr<Exchange> exchange;

  // The router's share of dx [T, H]; adds its weight gradient.
  at::Tensor router_backward(const at::Tensor& input, const at::Tensor& scores,
                             const at::Tensor& dprobabilities) {
    const std::int64_t hidden = input.size(1), experts = shape.experts, tokens = shape.tokens;
    const at::Tensor dlogits = scratch(tokens * experts);
    route_backward(shape, routing, scores.const_data_ptr<float>(),
                   dprobabilities.const_data_ptr<float>(), loss_scale,
                   dlogits.mutable_data_ptr<float>());
    const float* d = dlogits.const_data_ptr<float>();
    const Fp32 x32(input, type);
    const GradientOut dw = router->take();
    gemm(experts, hidden, tokens, 1.0F, {d, experts, true}, {x32.data(), hidden},
         dw.overwrite ? 0.0F : 1.0F, dw.data, hidden);
    const Fp32 w32(router->value, type);
    at::Tensor dx = empty(input.sizes(), type);
    const at::Tensor acc = type == DType::f32 ? dx : emulation_scratch(type, tokens * hidden);
    gemm(tokens, hidden, experts, 1.0F, {d, experts}, {w32.data(), hidden}, 0.0F,
         acc.mutable_data_ptr<float>(), hidden);
    if (type != DType::f32) {
      round_to_bf16(acc.const_data_ptr<float>(), dx.data_ptr(), tokens * hidden);
    }
    return dx;
  }

  variable_list apply(variable_list&& grads) override {
    const at::Tensor input = x.unpack(), scores = logits.unpack();
    const at::Tensor dprobabilities = exchange->values_to_slots(grads[1]);
    const at::Tensor through_router = router_backward(input, scores, dprobabilities);
    return {exchange->to_tokens(type, grads[0], through_router)};
  }
  void release_variables() override {
    x.reset_data();
    logits.reset_data();
  }
};

}  // namespace

Dispatched dispatch(const Run& run, const at::Tensor& x, Weight& router, const RouterShape& shape,
                    comm::Communicator& group) {
  const std::int64_t hidden = x.size(1);
  at::Tensor logits = empty({shape.tokens, shape.experts}, DType::f32);
  {
    const Fp32 x32(x, run.type);
    const Fp32 w32(router.value, run.type);
    gemm(shape.tokens, shape.experts, hidden, 1.0F, {x32.data(), hidden},
         {w32.data(), hidden, true}, 0.0F, logits.mutable_data_ptr<float>(), shape.experts);
  }
  Routing routing = route(shape, logits.const_data_ptr<float>());
  Dispatched out;
  out.load_balancing = routing.load_balancing;
  out.z = routing.z;
  out.exchange = std::make_shared<Exchange>(shape, routing, group);
  out.rows = out.exchange->to_rows(run.type, x);
  out.probabilities = out.exchange->values_to_rows(routing.probabilities.data());
  if (!run.training) return out;
  auto node = make_node<DispatchNode>(x);
  node->type = run.type;
  node->shape = shape;
  node->routing = std::move(routing);
  node->loss_scale = run.loss_scale;
  node->router = &router;
  node->x = save(x);
  node->logits = save(logits);
  node->exchange = out.exchange;
  set_output(out.rows, node);
  set_output(out.probabilities, node);
  return out;
}

// ---- experts ------------------------------------------------------------------------------------

namespace {

// A piece of an expert's product; cut at fixed sizes so that bits do not depend on threads.
struct Piece {
  std::int64_t expert, begin, end;
};
constexpr std::int64_t kPiece = 256;

void add_pieces(std::int64_t expert, std::int64_t begin, std::int64_t end,
                std::vector<Piece>& pieces) {
  for (std::int64_t at = begin; at < end; at += kPiece) {
    pieces.push_back({expert, at, std::min(end, at + kPiece)});
  }
}

// Row ranges of each expert that has rows.
std::vector<Piece> row_pieces(const std::vector<std::int64_t>& offsets) {
  std::vector<Piece> pieces;
  for (std::size_t e = 0; e + 1 < offsets.size(); ++e) {
    add_pieces(static_cast<std::int64_t>(e), offsets[e], offsets[e + 1], pieces);
  }
  return pieces;
}

// The weight of a piece's expert as fp32: in place, or widened into the thread's buffer.
class ExpertWeights {
 public:
  ExpertWeights(const Weight& weight, DType type) : weight_(weight), type_(type) {
    if (type != DType::f32) buffer_ = emulation_scratch(type, max_threads() * weight.piece_size());
  }
  const float* of(std::int64_t expert, int thread) const {
    const void* data = weight_.data(expert);
    if (type_ == DType::f32) return static_cast<const float*>(data);
    float* out = buffer_.mutable_data_ptr<float>() + thread * weight_.piece_size();
    widen(data, out, weight_.piece_size());
    return out;
  }

 private:
  const Weight& weight_;
  DType type_;
  at::Tensor buffer_;
};

// out[rows, n] = in[rows, k] times each row's expert matrix, [n, k] transposed or [k, n].
at::Tensor multiply(DType type, const at::Tensor& in, const Weight& weight, bool transposed,
                    const std::vector<std::int64_t>& offsets) {
  const std::int64_t rows = in.size(0), k = in.size(1);
  const std::int64_t n = weight.value.size(transposed ? 1 : 2);
  const std::int64_t ld = weight.value.size(2);
  at::Tensor out = empty({rows, n}, type);
  const Fp32 in32(in, type);
  const at::Tensor acc = type == DType::f32 ? out : emulation_scratch(type, rows * n);
  float* result = acc.mutable_data_ptr<float>();
  const ExpertWeights weights(weight, type);
  const std::vector<Piece> pieces = row_pieces(offsets);
  const auto count = static_cast<std::int64_t>(pieces.size());
  for_items(count, rows * n * k, [&](std::int64_t item, int thread) {
    const Piece& piece = pieces[static_cast<std::size_t>(item)];
    gemm(piece.end - piece.begin, n, k, 1.0F, {in32.data() + piece.begin * k, k},
         {weights.of(piece.expert, thread), ld, transposed}, 0.0F, result + piece.begin * n, n);
  });
  if (type != DType::f32) round_to_bf16(result, out.data_ptr(), rows * n);
  return out;
}

struct GroupedLinearNode final : Node {
  DType type;
  SavedVariable x;
  Weight* weight;
  std::shared_ptr<Exchange> exchange;

  void weight_gradients(const at::Tensor& dy, const at::Tensor& input) {
    const std::vector<std::int64_t>& offsets = exchange->offsets();
    const std::int64_t out = dy.size(1), in = input.size(1);
    const Fp32 dy32(dy, type), x32(input, type);
    std::vector<Piece> pieces;  // [begin, end) of the expert's output rows
    std::vector<GradientOut> targets(offsets.size() - 1);
    for (std::size_t e = 0; e + 1 < offsets.size(); ++e) {
      // An expert without a token keeps what it has; if nothing, it is zeroed at the step's end.
      if (offsets[e] == offsets[e + 1]) continue;
      targets[e] = weight->take(static_cast<std::int64_t>(e));
      add_pieces(static_cast<std::int64_t>(e), 0, out, pieces);
    }
    const auto count = static_cast<std::int64_t>(pieces.size());
    for_items(count, dy.size(0) * out * in, [&](std::int64_t item, int) {
      const Piece& piece = pieces[static_cast<std::size_t>(item)];
      const auto e = static_cast<std::size_t>(piece.expert);
      const std::int64_t first = offsets[e], rows = offsets[e + 1] - first;
      gemm(piece.end - piece.begin, in, rows, 1.0F,
           {dy32.data() + first * out + piece.begin, out, true}, {x32.data() + first * in, in},
           targets[e].overwrite ? 0.0F : 1.0F, targets[e].data + piece.begin * in, in);
    });
  }

  variable_list apply(variable_list&& grads) override {
    const at::Tensor input = x.unpack();
    weight_gradients(grads[0], input);
    return {multiply(type, grads[0], *weight, false, exchange->offsets())};
  }
  void release_variables() override { x.reset_data(); }
};

struct CombineNode final : Node {
  DType type;
  std::shared_ptr<Exchange> exchange;

  variable_list apply(variable_list&& grads) override {
    return {exchange->to_rows(type, grads[0]), grads[0]};
  }
};

}  // namespace

at::Tensor grouped_linear(const Run& run, const at::Tensor& rows, Weight& weight,
                          const std::shared_ptr<Exchange>& exchange) {
  const at::Tensor out = multiply(run.type, rows, weight, true, exchange->offsets());
  if (!run.training) return out;
  auto node = make_node<GroupedLinearNode>(rows);
  node->type = run.type;
  node->x = save(rows);
  node->weight = &weight;
  node->exchange = exchange;
  set_output(out, node);
  return out;
}

at::Tensor combine(const Run& run, const at::Tensor& rows,
                   const std::shared_ptr<Exchange>& exchange, const at::Tensor& residual) {
  at::Tensor out = exchange->to_tokens(run.type, rows, residual);
  if (!run.training) return out;
  auto node = make_node<CombineNode>(rows, residual);
  node->type = run.type;
  node->exchange = exchange;
  set_output(out, node);
  return out;
}

}  // namespace rr::model
