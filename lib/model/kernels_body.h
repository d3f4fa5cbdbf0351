// The kernels themselves, compiled once per instruction set: each including file sets RR_ISA and
// the target first. No standard templates here: an inline function compiled for a newer CPU must
// never be the copy that the linker keeps for everybody.

#include "model/kernels_heads.h"
#include "model/kernels_vector.h"

namespace rr::model::RR_ISA {
namespace {

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
