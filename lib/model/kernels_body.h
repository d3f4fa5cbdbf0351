// The kernels themselves, compiled once per instruction set: each including file sets RR_ISA and
// the target first. No standard templates here: an inline function compiled for a newer CPU must
// never be the copy that the linker keeps for everybody.

#include "model/kernels_vector.h"

namespace rr::model::RR_ISA {
namespace {

template <class T>
const T* as(const void* data) {
  return static_cast<const T*>(data);
}
template <class T>
T* as(void* data) {
  return static_cast<T*>(data);
}

void widen(const void* in, float* out, Index count) {
  for_vector(count, [&](Index i, Index n) { store(out + i, n, load(as<Bf16>(in) + i, n)); });
}

void round_to_bf16(const float* in, void* out, Index count) {
  for_vector(count, [&](Index i, Index n) { store(as<Bf16>(out) + i, n, load(in + i, n)); });
}

// ---- normalisation ----------------------------------------------------------------------------

template <class T>
void norm_forward(const NormForward& args, Index begin, Index end) {
  const Index width = args.shape.width;
  const T* weight = as<T>(args.weight);
  for (Index row = begin; row < end; ++row) {
    const T* x = as<T>(args.x) + row * width;
    T* y = as<T>(args.y) + row * width;
    Vector sums{};
    float mean = 0;
    if (args.shape.center) {
      for_vector(width, [&](Index i, Index n) { sums += load(x + i, n); });
      mean = sum(sums) / static_cast<float>(width);
      args.mean[row] = mean;
    }
    Vector squares{};
    for_vector(width, [&](Index i, Index n) {
      const Vector v = load(x + i, n) - only(n, mean);
      squares += v * v;
    });
    const float rstd =
        1.0F / __builtin_sqrtf(sum(squares) / static_cast<float>(width) + args.shape.epsilon);
    args.rstd[row] = rstd;
    for_vector(width, [&](Index i, Index n) {
      Vector v = (load(x + i, n) - mean) * rstd * load(weight + i, n);
      if (args.shape.center) v += load(as<T>(args.bias) + i, n);
      store(y + i, n, v);
    });
  }
}

// partial: [2, width], the sums of this range for weight and bias.
template <class T>
void norm_backward(const NormBackward& args, Index begin, Index end, float* partial) {
  const Index width = args.shape.width;
  const T* weight = as<T>(args.weight);
  float* dweight = partial;
  float* dbias = partial + width;
  for (Index i = 0; i < 2 * width; ++i) partial[i] = 0;
  for (Index row = begin; row < end; ++row) {
    const T* x = as<T>(args.x) + row * width;
    const T* dy = as<T>(args.dy) + row * width;
    T* dx = as<T>(args.dx) + row * width;
    const float rstd = args.rstd[row];
    const float mean = args.shape.center ? args.mean[row] : 0.0F;
    Vector dots{};
    Vector sums{};
    for_vector(width, [&](Index i, Index n) {
      const Vector g = load(dy + i, n);
      const Vector normal = (load(x + i, n) - only(n, mean)) * rstd;
      const Vector weighted = g * load(weight + i, n);
      dots += weighted * normal;
      sums += weighted;
      store(dweight + i, n, load(dweight + i, n) + g * normal);
      if (args.shape.center) store(dbias + i, n, load(dbias + i, n) + g);
    });
    const float dot = sum(dots) / static_cast<float>(width);
    const float average = args.shape.center ? sum(sums) / static_cast<float>(width) : 0.0F;
    for_vector(width, [&](Index i, Index n) {
      const Vector normal = (load(x + i, n) - mean) * rstd;
      Vector v = (load(dy + i, n) * load(weight + i, n) - normal * dot - average) * rstd;
      if (args.residual != nullptr) v += load(as<T>(args.residual) + row * width + i, n);
      store(dx + i, n, v);
    });
  }
}

// ---- attention heads --------------------------------------------------------------------------

inline constexpr Index kMaxHeadDim = 512;

// Rotates `x` by the angle of its position, or back.
inline void rotate(const HeadsShape& shape, Index row, float direction, float* x) {
  const Index half = shape.rotary / 2;
  if (half == 0) return;
  const float* cosines = shape.cosines + shape.positions[row] * half;
  const float* sines = shape.sines + shape.positions[row] * half;
  for_vector(half, [&](Index i, Index n) {
    const Vector c = load(cosines + i, n);
    const Vector s = load(sines + i, n) * direction;
    const Vector a = load(x + i, n);
    const Vector b = load(x + half + i, n);
    store(x + i, n, a * c - b * s);
    store(x + half + i, n, b * c + a * s);
  });
}

template <class T>
float sum_of_squares(const T* x, Index width) {
  Vector squares{};
  for_vector(width, [&](Index i, Index n) {
    const Vector v = load(x + i, n);
    squares += v * v;
  });
  return sum(squares);
}

// The query or key heads of one token: where head `h` lies in the fused row and in the output.
struct HeadSet {
  Index count;         // heads
  Index per_group;     // of them in one group
  Index first;         // place of the first within its group
  const void* weight;  // null: no norm
};

template <class T>
float head_rstd(const HeadsShape& shape, const T* x, Index elements) {
  return 1.0F / __builtin_sqrtf(sum_of_squares(x, elements) / static_cast<float>(elements) +
                                shape.epsilon);
}

inline Index place(const HeadsShape& shape, const HeadSet& set, Index head) {
  const Index per_group = shape.heads / shape.groups + 2;
  return (head / set.per_group * per_group + set.first + head % set.per_group) * shape.dim;
}

// 1 / root mean square over all heads of the set.
template <class T>
float whole_rstd(const HeadsShape& shape, const HeadSet& set, const T* row) {
  float total = 0;
  for (Index head = 0; head < set.count; ++head) {
    total += sum_of_squares(row + place(shape, set, head), shape.dim);
  }
  return 1.0F / __builtin_sqrtf(total / static_cast<float>(set.count * shape.dim) + shape.epsilon);
}

template <class T>
void head_set_forward(const HeadsShape& shape, const HeadSet& set, const T* qkv, Index token,
                      T* out) {
  const Index dim = shape.dim;
  const Index batch = token / shape.seq;
  const Index position = token % shape.seq;
  const bool norm = set.weight != nullptr;
  const float whole = norm && shape.whole ? whole_rstd(shape, set, qkv) : 0.0F;
  alignas(64) float buffer[kMaxHeadDim];
  for (Index head = 0; head < set.count; ++head) {
    const T* x = qkv + place(shape, set, head);
    T* y = out + ((batch * set.count + head) * shape.seq + position) * dim;
    const float rstd = !norm ? 1.0F : shape.whole ? whole : head_rstd(shape, x, dim);
    const T* weight = as<T>(set.weight) + (shape.whole ? head * dim : 0);
    for_vector(dim, [&](Index i, Index n) {
      Vector v = load(x + i, n);
      if (norm) v = v * rstd * load(weight + i, n);
      store(buffer + i, n, v);
    });
    rotate(shape, token, 1.0F, buffer);
    for_vector(dim, [&](Index i, Index n) { store(y + i, n, load(buffer + i, n)); });
  }
}

inline HeadSet queries(const HeadsShape& shape) {
  return {shape.heads, shape.heads / shape.groups, 0, shape.q_weight};
}
inline HeadSet keys(const HeadsShape& shape) {
  return {shape.groups, 1, shape.heads / shape.groups, shape.k_weight};
}

template <class T>
void heads_forward(const HeadsForward& args, Index begin, Index end) {
  const HeadsShape& shape = args.shape;
  const Index per_group = shape.heads / shape.groups + 2;
  const Index row = shape.groups * per_group * shape.dim;
  for (Index token = begin; token < end; ++token) {
    const T* qkv = as<T>(args.qkv) + token * row;
    head_set_forward(shape, queries(shape), qkv, token, as<T>(args.q));
    head_set_forward(shape, keys(shape), qkv, token, as<T>(args.k));
    for (Index group = 0; group < shape.groups; ++group) {
      const T* x = qkv + (group * per_group + per_group - 1) * shape.dim;
      T* y =
          as<T>(args.v) +
          ((token / shape.seq * shape.groups + group) * shape.seq + token % shape.seq) * shape.dim;
      __builtin_memcpy(y, x, static_cast<unsigned long>(shape.dim) * sizeof(T));
    }
  }
}

// dx = rstd * (w dz - normal * mean(w dz normal)); dz is what comes back through the rotation.
template <class T>
void head_set_backward(const HeadsShape& shape, const HeadSet& set, const T* qkv, Index token,
                       const T* dout, T* dqkv, float* dweight) {
  const Index dim = shape.dim;
  const Index batch = token / shape.seq;
  const Index position = token % shape.seq;
  const bool norm = set.weight != nullptr;
  const float whole = norm && shape.whole ? whole_rstd(shape, set, qkv) : 0.0F;
  alignas(64) float buffer[kMaxHeadDim];
  auto rotated_back = [&](Index head) {
    const T* dy = dout + ((batch * set.count + head) * shape.seq + position) * dim;
    for_vector(dim, [&](Index i, Index n) { store(buffer + i, n, load(dy + i, n)); });
    rotate(shape, token, -1.0F, buffer);
  };
  auto weighted_dot = [&](Index head, float rstd) {
    const T* x = qkv + place(shape, set, head);
    const T* weight = as<T>(set.weight) + (shape.whole ? head * dim : 0);
    Vector dots{};
    for_vector(dim, [&](Index i, Index n) {
      dots += load(buffer + i, n) * load(weight + i, n) * (load(x + i, n) * rstd);
    });
    return sum(dots);
  };
  float whole_dot = 0;
  if (norm && shape.whole) {
    for (Index head = 0; head < set.count; ++head) {
      rotated_back(head);
      whole_dot += weighted_dot(head, whole);
    }
    whole_dot /= static_cast<float>(set.count * dim);
  }
  for (Index head = 0; head < set.count; ++head) {
    const T* x = qkv + place(shape, set, head);
    T* dx = dqkv + place(shape, set, head);
    rotated_back(head);
    if (!norm) {
      for_vector(dim, [&](Index i, Index n) { store(dx + i, n, load(buffer + i, n)); });
      continue;
    }
    const Index offset = shape.whole ? head * dim : 0;
    const T* weight = as<T>(set.weight) + offset;
    const float rstd = shape.whole ? whole : head_rstd(shape, x, dim);
    const float dot = shape.whole ? whole_dot : weighted_dot(head, rstd) / static_cast<float>(dim);
    for_vector(dim, [&](Index i, Index n) {
      const Vector g = load(buffer + i, n);
      const Vector normal = load(x + i, n) * rstd;
      store(dx + i, n, (g * load(weight + i, n) - normal * dot) * rstd);
      store(dweight + offset + i, n, load(dweight + offset + i, n) + g * normal);
    });
  }
}

// partial: weight gradients of q, then of k.
template <class T>
void heads_backward(const HeadsBackward& args, Index begin, Index end, float* partial) {
  const HeadsShape& shape = args.shape;
  const Index per_group = shape.heads / shape.groups + 2;
  const Index row = shape.groups * per_group * shape.dim;
  const Index q_width = shape.whole ? shape.heads * shape.dim : shape.dim;
  const Index k_width = shape.whole ? shape.groups * shape.dim : shape.dim;
  if (partial != nullptr) {
    for (Index i = 0; i < q_width + k_width; ++i) partial[i] = 0;
  }
  for (Index token = begin; token < end; ++token) {
    const T* qkv = args.qkv == nullptr ? nullptr : as<T>(args.qkv) + token * row;
    T* dqkv = as<T>(args.dqkv) + token * row;
    head_set_backward(shape, queries(shape), qkv, token, as<T>(args.dq), dqkv, partial);
    head_set_backward(shape, keys(shape), qkv, token, as<T>(args.dk), dqkv,
                      partial == nullptr ? nullptr : partial + q_width);
    for (Index group = 0; group < shape.groups; ++group) {
      const T* dv =
          as<T>(args.dv) +
          ((token / shape.seq * shape.groups + group) * shape.seq + token % shape.seq) * shape.dim;
      __builtin_memcpy(dqkv + (group * per_group + per_group - 1) * shape.dim, dv,
                       static_cast<unsigned long>(shape.dim) * sizeof(T));
    }
  }
}

// ---- feed-forward -----------------------------------------------------------------------------

// Value and derivative of x * sigmoid(x), or of x * Phi(x).
struct Curve {
  Vector value, slope;
};
inline Curve silu(const Vector& x) {
  const Vector s = 1.0F / (1.0F + exponential(-x));
  return {x * s, s * (1.0F + x * (1.0F - s))};
}
inline Curve gelu(const Vector& x) {
  const Vector phi = 0.5F * (1.0F + error_function(x * 0.70710678F));
  const Vector density = 0.39894228F * exponential(-0.5F * x * x);
  return {x * phi, phi + x * density};
}

template <class T>
void activation_forward(const ActivationShape& shape, const void* h, const float* probability,
                        void* y, Index begin, Index end) {
  const Index width = shape.width;
  for (Index row = begin; row < end; ++row) {
    const T* gate = as<T>(h) + row * width * (shape.gated ? 2 : 1);
    T* out = as<T>(y) + row * width;
    const float p = probability == nullptr ? 1.0F : probability[row];
    for_vector(width, [&](Index i, Index n) {
      const Vector g = load(gate + i, n);
      Vector v = (shape.gelu ? gelu(g) : silu(g)).value;
      if (shape.gated) v *= load(gate + width + i, n);
      store(out + i, n, v * p);
    });
  }
}

template <class T>
void activation_backward(const ActivationShape& shape, const void* h, const float* probability,
                         const void* dy, void* dh, float* dprobability, Index begin, Index end) {
  const Index width = shape.width;
  const Index stride = width * (shape.gated ? 2 : 1);
  for (Index row = begin; row < end; ++row) {
    const T* gate = as<T>(h) + row * stride;
    T* dgate = as<T>(dh) + row * stride;
    const T* grad = as<T>(dy) + row * width;
    const float p = probability == nullptr ? 1.0F : probability[row];
    Vector dots{};
    for_vector(width, [&](Index i, Index n) {
      const Vector g = load(gate + i, n);
      const Curve curve = shape.gelu ? gelu(g) : silu(g);
      const Vector up = shape.gated ? load(gate + width + i, n) : only(n, 1.0F);
      const Vector d = load(grad + i, n);
      dots += d * curve.value * up;
      store(dgate + i, n, d * p * up * curve.slope);
      if (shape.gated) store(dgate + width + i, n, d * p * curve.value);
    });
    if (dprobability != nullptr) dprobability[row] = sum(dots);
  }
}

template <class T>
void linear_epilogue(Index width, const float* acc, const void* bias, const void* residual, void* y,
                     Index begin, Index end) {
  for (Index row = begin; row < end; ++row) {
    for_vector(width, [&](Index i, Index n) {
      Vector v = load(acc + row * width + i, n);
      if (bias != nullptr) v += load(as<T>(bias) + i, n);
      if (residual != nullptr) v += load(as<T>(residual) + row * width + i, n);
      store(as<T>(y) + row * width + i, n, v);
    });
  }
}

template <class T>
void column_sums(Index width, const void* x, Index begin, Index end, float* partial) {
  for (Index i = 0; i < width; ++i) partial[i] = 0;
  for (Index row = begin; row < end; ++row) {
    for_vector(width, [&](Index i, Index n) {
      store(partial + i, n, load(partial + i, n) + load(as<T>(x) + row * width + i, n));
    });
  }
}

void sum_partials(const float* partials, Index count, Index stride, Index width, GradientOut out) {
  for_vector(width, [&](Index i, Index n) {
    Vector v = load(partials + i, n);
    for (Index p = 1; p < count; ++p) v += load(partials + p * stride + i, n);
    if (!out.overwrite) v += load(out.data + i, n);
    store(out.data + i, n, v);
  });
}

// ---- rows by index ----------------------------------------------------------------------------

template <class T>
void sum_rows(Index per_token, Index width, const void* in, const std::int32_t* index,
              const void* residual, void* out, Index begin, Index end) {
  for (Index token = begin; token < end; ++token) {
    const std::int32_t* rows = index + token * per_token;
    for_vector(width, [&](Index i, Index n) {
      Vector v{};
      for (Index k = 0; k < per_token; ++k) v += load(as<T>(in) + rows[k] * width + i, n);
      if (residual != nullptr) v += load(as<T>(residual) + token * width + i, n);
      store(as<T>(out) + token * width + i, n, v);
    });
  }
}

template <class T>
void scatter_add(Index tokens, Index width, const void* dy, const std::int64_t* ids, float* out,
                 Index begin_column, Index end_column) {
  for (Index token = 0; token < tokens; ++token) {
    float* row = out + ids[token] * width + begin_column;
    const T* grad = as<T>(dy) + token * width + begin_column;
    for_vector(end_column - begin_column,
               [&](Index i, Index n) { store(row + i, n, load(row + i, n) + load(grad + i, n)); });
  }
}

// ---- loss and scores ----------------------------------------------------------------------------

template <class T>
float maximum(const T* x, Index width) {
  Vector most = only(kLanes, -__builtin_inff());
  for_vector(width, [&](Index i, Index n) {
    const Vector v = n == kLanes ? load(x + i, n) : load_or(x + i, n, -__builtin_inff());
    most = v > most ? v : most;
  });
  float result = most[0];
  for (int lane = 1; lane < kLanes; ++lane) result = most[lane] > result ? most[lane] : result;
  return result;
}

template <class T>
void cross_entropy(Index width, void* logits, const std::int64_t* labels, const float* scale,
                   float* loss, Index begin, Index end) {
  for (Index row = begin; row < end; ++row) {
    T* x = as<T>(logits) + row * width;
    const float most = maximum(x, width);
    Vector sums{};
    for_vector(width,
               [&](Index i, Index n) { sums += keep(n, exponential(load(x + i, n) - most)); });
    const float total = sum(sums);
    const Index label = labels[row];
    float target;
    load_one(x + label, target);
    loss[row] = most + __builtin_logf(total) - target;
    if (scale == nullptr) continue;
    const float factor = scale[row] / total;
    const float at_label = exponential(target - most) * factor - scale[row];
    for_vector(width, [&](Index i, Index n) {
      store(x + i, n, exponential(load(x + i, n) - most) * factor);
    });
    store_one(x + label, at_label);
  }
}

inline Index first_column(const ScoreRows& shape, Index row) {
  return shape.starts == nullptr ? 0 : shape.starts[row];
}

void softmax_rows(const ScoreRows& shape, float* scores, float* inverse_sum, float* log_sum) {
  for (Index row = 0; row < shape.rows; ++row) {
    float* x = scores + row * shape.ld;
    const Index first = first_column(shape, row);
    const Index last = shape.first_position + row + 1;
    for (Index i = 0; i < first; ++i) x[i] = 0;
    for (Index i = last; i < shape.columns; ++i) x[i] = 0;
    const float most = maximum(x + first, last - first);
    Vector sums{};
    for_vector(last - first, [&](Index i, Index n) {
      const Vector v = keep(n, exponential(load(x + first + i, n) - most));
      sums += v;
      store(x + first + i, n, v);
    });
    const float total = sum(sums);
    inverse_sum[row] = 1.0F / total;
    log_sum[row] = most + __builtin_logf(total);
  }
}

void softmax_rows_backward(const ScoreRows& shape, float* scores, float* dp, const float* log_sum,
                           const float* delta) {
  for (Index row = 0; row < shape.rows; ++row) {
    float* x = scores + row * shape.ld;
    float* d = dp + row * shape.ld;
    const Index first = first_column(shape, row);
    const Index last = shape.first_position + row + 1;
    for (Index i = 0; i < first; ++i) x[i] = d[i] = 0;
    for (Index i = last; i < shape.columns; ++i) x[i] = d[i] = 0;
    for_vector(last - first, [&](Index i, Index n) {
      const Vector p = exponential(load(x + first + i, n) - log_sum[row]);
      store(x + first + i, n, p);
      store(d + first + i, n, p * (load(d + first + i, n) - delta[row]));
    });
  }
}

template <class T>
void row_dots(Index rows, Index width, const void* a, Index lda, const void* b, Index ldb,
              float* out) {
  for (Index row = 0; row < rows; ++row) {
    Vector dots{};
    for_vector(width, [&](Index i, Index n) {
      dots += load(as<T>(a) + row * lda + i, n) * load(as<T>(b) + row * ldb + i, n);
    });
    out[row] = sum(dots);
  }
}

template <class T>
void scale_rows(Index rows, Index width, const float* in, Index ldi, const float* factor, void* out,
                Index ldo) {
  for (Index row = 0; row < rows; ++row) {
    for_vector(width, [&](Index i, Index n) {
      store(as<T>(out) + row * ldo + i, n, load(in + row * ldi + i, n) * factor[row]);
    });
  }
}

template <class T>
constexpr KernelTable::PerType per_type() {
  return {norm_forward<T>,       norm_backward<T>,       heads_forward<T>,   heads_backward<T>,
          activation_forward<T>, activation_backward<T>, linear_epilogue<T>, column_sums<T>,
          sum_rows<T>,           scatter_add<T>,         cross_entropy<T>,   row_dots<T>,
          scale_rows<T>};
}

}  // namespace

const KernelTable kTable = {
    widen,        round_to_bf16,         {per_type<float>(), per_type<Bf16>()},
    softmax_rows, softmax_rows_backward, sum_partials};

}  // namespace rr::model::RR_ISA
