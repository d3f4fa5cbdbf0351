// Attention heads: norm of queries and keys, RoPE, and the change of layout. Included by
// kernels_body.h only.

#include "model/kernels_vector.h"

namespace rr::model::RR_ISA {
namespace {

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

}  // namespace
}  // namespace rr::model::RR_ISA
