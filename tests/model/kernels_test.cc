// The fused kernels against float64 golden values, and against each other on every instruction set.
#include "model/kernels.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "base/random.h"
#include "golden.h"
#include "model/kernels_table.h"
#include "model/rope.h"

namespace rr::model {

namespace {

std::vector<float> normal(std::int64_t count, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(count));
  RandomStream(7, name).normal(0, count, 1.0F, values.data());
  return values;
}

}  // namespace

TEST_CASE("RMSNorm forward and backward agree with float64, bf16 rounds once") {
  const Golden golden;
  const std::pair<const char*, float> cases[] = {{"a", 1e-6F}, {"b", 1e-5F}, {"c", 1e-6F}};
  for (const auto& [letter, epsilon] : cases) {
    const std::string name = std::string("norm.") + letter + ".";
    INFO(name);
    const auto x = golden.floats(name + "x"), w = golden.floats(name + "w"),
               dy = golden.floats(name + "dy");
    const auto width = static_cast<std::int64_t>(w.size());
    const NormShape shape{DType::f32, 35, width, false, epsilon};
    std::vector<float> y(x.size()), dx(x.size()), dw(w.size()), rstd(35);
    norm_forward({shape, x.data(), w.data(), nullptr, y.data(), rstd.data(), nullptr});
    CHECK(relative_error(y, golden.doubles(name + "y64")) < 1e-6);
    std::vector<float> scratch(static_cast<std::size_t>(partial_rows(35) * 2 * width));
    norm_backward({shape, x.data(), w.data(), rstd.data(), nullptr, dy.data(), nullptr, dx.data(),
                   GradientOut{dw.data(), true}, GradientOut{}, scratch.data()});
    CHECK(relative_error(dx, golden.doubles(name + "dx64")) < 1e-6);
    CHECK(relative_error(dw, golden.doubles(name + "dw64")) < 1e-6);

    const auto x16 = rounded(x), w16 = rounded(w);
    std::vector<std::uint16_t> y16(x.size());
    NormShape bf16 = shape;
    bf16.type = DType::bf16;
    norm_forward({bf16, x16.data(), w16.data(), nullptr, y16.data(), rstd.data(), nullptr});
    CHECK(max_ulps(y16, golden.get<std::uint16_t>(name + "ybf16_round_once")) <= 1);
  }
}

namespace {

struct RopeCase {
  const char* name;
  std::int64_t dim;
  double percent, base;
  bool far;  // positions where fp32 angles differ from exact ones
};
const RopeCase kRopeCases[] = {{"rope.a.", 16, 1.0, 1e4, false},
                               {"rope.b.", 64, 1.0, 1e6, true},
                               {"rope.partial.", 32, 0.5, 1e4, false}};

// Two sequences, one group of one query head; tables and positions live here.
struct Rope {
  Rope(const Golden& golden, const RopeCase& c) {
    positions = golden.get<std::int64_t>(c.name + std::string("positions"));
    shape.seq = static_cast<std::int64_t>(positions.size());
    plan::ModelSpec spec;
    spec.head_dim = c.dim;
    spec.rotary_percent = c.percent;
    spec.rotary_base = c.base;
    tables = make_rope_tables(spec, *std::max_element(positions.begin(), positions.end()) + 1);
    const std::vector<std::int64_t> one = positions;
    positions.insert(positions.end(), one.begin(), one.end());
    shape.batch = 2;
    shape.heads = shape.groups = 1;
    shape.dim = c.dim;
    shape.rotary = tables.rotary;
    shape.cosines = tables.cosines.data();
    shape.sines = tables.sines.data();
    shape.positions = positions.data();
  }
  std::vector<std::int64_t> positions;
  RopeTables tables;
  HeadsShape shape;
};

// Head `index` of three in [T, 3, D].
template <class T>
std::vector<T> head(const std::vector<T>& x, std::int64_t dim, std::size_t index) {
  const auto row = static_cast<std::size_t>(dim);
  std::vector<T> out;
  for (std::size_t t = 0; t < x.size() / (3 * row); ++t) {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>((t * 3 + index) * row);
    out.insert(out.end(), begin, begin + dim);
  }
  return out;
}

}  // namespace

TEST_CASE("rotate-half RoPE agrees with golden values, partial rotation and far positions too") {
  const Golden golden;
  for (const RopeCase& c : kRopeCases) {
    const std::string name = c.name;
    INFO(name);
    const Rope rope(golden, c);
    // Three heads of the file [B, S, 3, D] are the fused row of one group: q, k and v.
    const auto x = golden.floats(name + "x");
    std::vector<float> q(x.size() / 3), k(q), v(q);
    heads_forward({rope.shape, x.data(), q.data(), k.data(), v.data()});
    CHECK(v == head(x, c.dim, 2));
    // Far positions are compared with fp32 angles, and those differ by their last bit.
    const auto y32 = golden.floats(name + "y32");
    CHECK(relative_error(q, head(y32, c.dim, 0)) < (c.far ? 1e-3 : 1e-6));
    CHECK(relative_error(k, head(y32, c.dim, 1)) < (c.far ? 1e-3 : 1e-6));
    const auto y64 = golden.doubles(name + "y64");
    CHECK(relative_error(q, head(y64, c.dim, 0)) < (c.far ? 4e-3 : 1e-6));
  }
}

TEST_CASE("RoPE backward turns gradients back, values pass as they are") {
  const Golden golden;
  for (const RopeCase& c : kRopeCases) {
    const std::string name = c.name;
    INFO(name);
    const Rope rope(golden, c);
    const auto dy = golden.floats(name + "dy");
    const auto dq = head(dy, c.dim, 0), dk = head(dy, c.dim, 1), dv = head(dy, c.dim, 2);
    std::vector<float> dx(dy.size());
    HeadsBackward back{};
    back.shape = rope.shape;
    back.dq = dq.data();
    back.dk = dk.data();
    back.dv = dv.data();
    back.dqkv = dx.data();
    heads_backward(back);
    const auto want = golden.doubles(name + "dx64");
    CHECK(head(dx, c.dim, 2) == dv);
    for (const std::size_t i : {0U, 1U}) {
      CHECK(relative_error(head(dx, c.dim, i), head(want, c.dim, i)) < (c.far ? 4e-3 : 1e-6));
    }
  }
}

TEST_CASE("SwiGLU forward and backward agree with float64, bf16 rounds once") {
  const Golden golden;
  const auto gate = golden.floats("swiglu.gate"), up = golden.floats("swiglu.up"),
             dy = golden.floats("swiglu.dy");
  std::vector<float> h(720), y(360), dh(720), dgate(360), dup(360);
  for (std::size_t row = 0; row < 9; ++row) {
    std::copy_n(&gate[row * 40], 40, &h[row * 80]);
    std::copy_n(&up[row * 40], 40, &h[row * 80 + 40]);
  }
  const ActivationShape shape{DType::f32, 9, 40, true, false};
  activation_forward(shape, h.data(), nullptr, y.data());
  CHECK(relative_error(y, golden.doubles("swiglu.y64")) < 1e-6);
  activation_backward(shape, h.data(), nullptr, dy.data(), dh.data(), nullptr);
  for (std::size_t row = 0; row < 9; ++row) {
    std::copy_n(&dh[row * 80], 40, &dgate[row * 40]);
    std::copy_n(&dh[row * 80 + 40], 40, &dup[row * 40]);
  }
  CHECK(relative_error(dgate, golden.doubles("swiglu.dgate64")) < 1e-6);
  CHECK(relative_error(dup, golden.doubles("swiglu.dup64")) < 1e-6);

  const auto h16 = rounded(h);
  std::vector<std::uint16_t> y16(360);
  activation_forward({DType::bf16, 9, 40, true, false}, h16.data(), nullptr, y16.data());
  auto want16 = golden.get<std::uint16_t>("swiglu.ybf16_round_once");
  // The exponential is clamped at e^88, so what should be below 1e-36 is only near that.
  for (std::vector<std::uint16_t>* values : {&y16, &want16}) {
    for (std::uint16_t& value : *values) {
      if (std::fabs(float_from_bf16(value)) < 1e-34F) value = 0;
    }
  }
  CHECK(max_ulps(y16, want16) <= 1);
}

TEST_CASE("GELU is x Phi(x), and its slope agrees with finite differences") {
  std::vector<float> x, y(200), dy(200, 1.0F), dx(200);
  for (int i = 0; i < 200; ++i) x.push_back(static_cast<float>(i - 100) / 15.0F);
  const ActivationShape shape{DType::f32, 2, 100, false, true};
  activation_forward(shape, x.data(), nullptr, y.data());
  activation_backward(shape, x.data(), nullptr, dy.data(), dx.data(), nullptr);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto gelu = [](double v) { return 0.5 * v * std::erfc(-v / std::sqrt(2.0)); };
    INFO(x[i]);
    CHECK(std::abs(static_cast<double>(y[i]) - gelu(static_cast<double>(x[i]))) < 1e-6);
    const double h = 1e-5, at = static_cast<double>(x[i]);
    CHECK(std::abs(static_cast<double>(dx[i]) - (gelu(at + h) - gelu(at - h)) / (2 * h)) < 2e-6);
  }
}

namespace {

// Inputs for every kernel, as floats and as bf16; rows are no multiple of 16 wide.
struct Inputs {
  static constexpr std::int64_t kRows = 5, kWidth = 53;
  std::vector<float> x = normal(kRows * kWidth * 2, "x"), w = normal(kWidth, "w"),
                     dy = normal(kRows * kWidth, "dy");
  std::vector<std::uint16_t> x16 = rounded(x), w16 = rounded(w), dy16 = rounded(dy);
};

using Bytes = std::vector<float>;

// What all kernels of a table give, one after the other.
Bytes outputs_of(const KernelTable& table, int type) {
  const auto& [x, w, dy, x16, w16, dy16] = Inputs();
  constexpr std::int64_t rows = Inputs::kRows, width = Inputs::kWidth;
  const auto pick = [&](const std::vector<float>& f, const std::vector<std::uint16_t>& h) {
    return type == 0 ? static_cast<const void*>(f.data()) : static_cast<const void*>(h.data());
  };
  Bytes all;
  const auto keep = [&](const Bytes& out) { all.insert(all.end(), out.begin(), out.end()); };
  const auto& k = table.typed[type];
  const NormShape shape{type == 0 ? DType::f32 : DType::bf16, rows, width, true, 1e-5F};
  Bytes y(rows * width), rstd(rows), mean(rows), dx(rows * width), partial(2 * width);
  NormForward norm{shape,    pick(x, x16), pick(w, w16), pick(w, w16),
                   y.data(), rstd.data(),  mean.data()};
  k.norm_forward(norm, 0, rows);
  NormBackward back{};
  back.shape = shape;
  back.x = norm.x;
  back.weight = norm.weight;
  back.rstd = rstd.data();
  back.mean = mean.data();
  back.dy = pick(dy, dy16);
  back.residual = back.dy;
  back.dx = dx.data();
  k.norm_backward(back, 0, rows, partial.data());
  for (const Bytes* out : {&y, &rstd, &mean, &dx, &partial}) keep(*out);
  for (const bool gelu : {false, true}) {
    const ActivationShape act{shape.type, rows, width, true, gelu};
    Bytes dh(2 * rows * width), dp(rows);
    k.activation_forward(act, pick(x, x16), rstd.data(), y.data(), 0, rows);
    k.activation_backward(act, pick(x, x16), rstd.data(), back.dy, dh.data(), dp.data(), 0, rows);
    for (const Bytes* out : {&y, &dh, &dp}) keep(*out);
  }
  Bytes logits(rows * width), loss(rows);
  std::memcpy(logits.data(), pick(x, x16),
              static_cast<std::size_t>(rows * width) * (type == 0 ? 4 : 2));
  const std::vector<std::int64_t> labels = {0, 52, 7, 8, 9};
  k.cross_entropy(width, logits.data(), labels.data(), rstd.data(), loss.data(), 0, rows);
  keep(logits);
  keep(loss);
  Bytes scores = x, dp = x, inverse(rows), log_sum(rows);
  const ScoreRows block{rows, width, width, width - rows, nullptr};
  table.softmax_rows(block, scores.data(), inverse.data(), log_sum.data());
  keep(scores);
  scores = x;
  table.softmax_rows_backward(block, scores.data(), dp.data(), log_sum.data(), rstd.data());
  for (const Bytes* out : {&scores, &dp, &inverse, &log_sum}) keep(*out);
  return all;
}

}  // namespace

TEST_CASE("every instruction set gives the same bits") {
  for (const int type : {0, 1}) {
    const Bytes want = outputs_of(generic::kTable, type);
    int compared = 0;
    const auto compare = [&](const char* isa, const KernelTable& table) {
      INFO(isa << " type " << type);
      const Bytes got = outputs_of(table, type);
      CHECK(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)) == 0);
      ++compared;
    };
    if (__builtin_cpu_supports("avx2")) compare("avx2", avx2::kTable);
    if (__builtin_cpu_supports("avx512bw")) compare("avx512", avx512::kTable);
    if (compared == 0) WARN("only the generic kernels run on this CPU");
  }
}

TEST_CASE("NaN and infinity survive rounding to bf16 and the loss") {
  const std::vector<float> in = {NAN, INFINITY, -INFINITY, 3.3895314e38F, 1.0F, -0.0F, 1e-40F};
  std::vector<std::uint16_t> out(in.size());
  round_to_bf16(in.data(), out.data(), static_cast<std::int64_t>(in.size()));
  CHECK(out == rounded(in));
  std::vector<float> logits(20, 0.5F), loss(1);
  logits[3] = NAN;
  const std::int64_t label = 1;
  cross_entropy(DType::f32, 1, 20, logits.data(), &label, nullptr, loss.data());
  CHECK(std::isnan(loss[0]));
}

}  // namespace rr::model
