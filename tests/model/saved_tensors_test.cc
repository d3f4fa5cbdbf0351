// Activations that leave for the host: the same bits, less device memory, layouts intact.
#include "model/saved_tensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <catch2/catch.hpp>

#include "rig.h"

namespace rr::model {

namespace {

plan::ModelSpec eight_layers() {
  plan::ModelSpec spec = small_spec();
  spec.num_layers = 8;
  spec.experts = 4;
  spec.experts_per_token = 2;
  spec.expert_ffn = 32;
  spec.qk_norm = true;
  // The first seven alike, so that every layer that leaves has the same bytes.
  spec.layer_is_moe.assign(8, true);
  return spec;
}

struct StepResult {
  double loss = 0;
  std::map<std::string, at::Tensor> gradients;
  std::int64_t peak = 0;  // of the device pool, above what is there before
};

// Two micro-batches, one after the other.
StepResult step(Rig& rig) {
  StepResult result;
  device::Device& device = test_device();
  const std::int64_t before = device.usage(Pool::device).now;
  device.reset_peaks();
  rig.model->begin_step();
  for (int m = 0; m < 2; ++m) {
    const Tokens tokens =
        random_tokens(2, 32, rig.plan.model.vocab, 40 + static_cast<std::uint64_t>(m));
    rig.model->forward(m, tokens, {}, 0.5);
    result.loss += rig.model->loss().sum;
    rig.model->backward(m, {}, m == 1);
  }
  result.peak = device.usage(Pool::device).peak - before;
  result.gradients = rig.gradients();
  return result;
}

}  // namespace

TEST_CASE("B094, B095: any number of layers may leave: same bits, falling peak, exact bytes") {
  const plan::ModelSpec spec = eight_layers();
  Rig stay(spec);
  stay.draw_weights();
  const StepResult want = step(stay);
  std::int64_t peak = want.peak, one_layer = 0;
  for (std::int64_t n = 1; n <= 7; ++n) {
    INFO(n << " layers");
    RigOptions options;
    options.offload_layers = n;
    Rig rig(spec, std::move(options));
    rig.draw_weights();
    const StepResult got = step(rig);
    CHECK(got.loss == want.loss);
    CHECK(same_bits(got.gradients, want.gradients));
    CHECK(got.peak <= peak);
    peak = got.peak;
    const offload::Totals totals = rig.store->totals();
    CHECK(totals.bytes_in == totals.bytes_out);
    if (n == 1) one_layer = totals.bytes_out;
    CHECK(totals.bytes_out == n * one_layer);
  }
  // Two layers' activations stay on the device at a time: the one at work and the one on its way.
  CHECK(want.peak - peak > one_layer / 2 * 7 * 6 / 10);
}

TEST_CASE("a layer's tensors are on their way back while the layer after it runs backward") {
  const plan::ModelSpec spec = eight_layers();
  std::map<int, std::int64_t> back;  // bytes asked for when the layer is done
  Rig* self = nullptr;
  RigOptions options;
  options.offload_layers = 6;
  options.hooks.gradients_ready = [&](int layer) { back[layer] = self->store->totals().bytes_in; };
  Rig rig(spec, std::move(options));
  self = &rig;
  rig.draw_weights();
  train_once(rig, random_tokens(2, 32, spec.vocab, 40));
  const std::int64_t one_layer = rig.store->totals().bytes_out / 6;
  CHECK(back[9] == 0);
  CHECK(back[8] == one_layer);  // next is layer 7, which stayed; 6 comes
  CHECK(back[7] == 2 * one_layer);
  CHECK(back[4] == 5 * one_layer);
  CHECK(back[1] == 6 * one_layer);
}

TEST_CASE("B102: the comparison sees a single wrong bit") {
  Rig rig(small_spec());
  rig.draw_weights();
  const StepResult a = step(rig);
  StepResult b = a;
  at::Tensor& changed = b.gradients.begin()->second;
  changed = changed.clone();
  reinterpret_cast<std::uint32_t*>(changed.mutable_data_ptr())[5] ^= 1;
  CHECK_FALSE(same_bits(a.gradients, b.gradients));
}

TEST_CASE("B096: twenty runs with slow and reordered copies give the same bits") {
  const plan::ModelSpec spec = eight_layers();
  Rig stay(spec);
  stay.draw_weights();
  const StepResult want = step(stay);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    device::Faults faults;
    faults.seed = seed;
    faults.max_delay_us = 50;
    const auto slow = device::make_faulty_device(device::make_cpu_device(), faults);
    offload::Store store(*slow, seed % 2 == 0);
    RigOptions options;
    options.offload_layers = 7;
    options.store = &store;
    Rig rig(spec, std::move(options));
    rig.draw_weights();
    CHECK(same_bits(step(rig).gradients, want.gradients));
  }
}

TEST_CASE("a copy that fails fails the step, and nothing stays behind") {
  device::Faults faults;
  faults.fail_copy = 3;
  const auto broken = device::make_faulty_device(device::make_cpu_device(), faults);
  const std::int64_t before = test_device().usage(Pool::device).now;
  {
    offload::Store store(*broken, false);
    RigOptions options;
    options.offload_layers = 7;
    options.store = &store;
    Rig rig(eight_layers(), std::move(options));
    rig.draw_weights();
    CHECK_THROWS(step(rig));
  }
  CHECK(test_device().usage(Pool::device).now == before);
}

TEST_CASE("an abandoned micro-batch gives its host memory back with the model") {
  device::Device& device = test_device();
  const std::int64_t host = device.usage(Pool::host).now;
  {
    RigOptions options;
    options.offload_layers = 2;
    Rig rig(eight_layers(), std::move(options));
    rig.draw_weights();
    rig.model->begin_step();
    rig.model->forward(0, random_tokens(1, 16, 101, 1), {}, 1.0);
    CHECK(device.usage(Pool::host).now > host);
  }
  CHECK(device.usage(Pool::host).now == host);
}

// ---- single tensors -----------------------------------------------------------------------------

namespace {

using torch::autograd::SavedVariable;

at::Tensor numbers(std::int64_t count) {
  return at::arange(count, at::TensorOptions().dtype(at::kFloat));
}

}  // namespace

TEST_CASE("B097: views come back with shape, strides, offset and dtype, one storage leaves once") {
  device::Device& device = test_device();
  offload::Store store(device, false);
  SavedTensors saved(store, {1}, 1);
  at::Tensor base = numbers(24).view({4, 6});
  at::Tensor other = numbers(7).to(at::kBFloat16);  // odd size
  std::vector<at::Tensor> views = {base,
                                   base.t(),
                                   base.narrow(1, 2, 3),
                                   base.select(0, 3),
                                   other,
                                   other.narrow(0, 1, 1).expand({5, 1})};
  std::vector<at::Tensor> want;
  for (const at::Tensor& view : views) want.push_back(view.clone());
  std::vector<std::pair<std::vector<std::int64_t>, std::int64_t>> layouts;
  for (const at::Tensor& v : views) layouts.emplace_back(v.strides().vec(), v.storage_offset());
  std::vector<SavedVariable> kept;
  saved.begin_layer(0, 1);
  for (const at::Tensor& view : views) kept.emplace_back(view, false);
  const at::Tensor nothing = at::empty({0, 3});
  kept.emplace_back(nothing, false);
  base.reset();
  other.reset();
  views.clear();
  saved.end_layer();
  CHECK(store.totals().bytes_out == 24 * 4 + 7 * 2);
  CHECK(store.totals().bytes_in == 0);
  saved.before_backward(0, 1);
  CHECK(store.totals().bytes_in == store.totals().bytes_out);
  for (std::size_t i = 0; i < want.size(); ++i) {
    INFO("view " << i);
    const at::Tensor back = kept[i].unpack();
    CHECK(back.scalar_type() == want[i].scalar_type());
    CHECK(back.strides().vec() == layouts[i].first);
    CHECK(back.storage_offset() == layouts[i].second);
    CHECK(same_bits(back, want[i]));
  }
  CHECK(kept[0].unpack().storage().data() == kept[1].unpack().storage().data());
  CHECK(kept.back().unpack().sizes() == nothing.sizes());
  saved.drop(0, 1);
}

TEST_CASE(
    "B099, B101: borrowed memory, small tensors and other layers' tensors stay where they are") {
  device::Device& device = test_device();
  offload::Store store(device, false);
  SavedTensors saved(store, {1}, 10);
  const Span slab = device.allocate(Pool::host, 4096, "a test");
  const at::Tensor host = at::from_blob(slab.data, {100}, at::TensorOptions().dtype(at::kFloat));
  const at::Tensor small = numbers(9), large = numbers(10);
  std::vector<SavedVariable> kept;
  saved.begin_layer(0, 1);
  for (const at::Tensor* t : {&host, &small}) kept.emplace_back(*t, false);
  saved.end_layer();
  saved.begin_layer(0, 2);
  kept.emplace_back(large, false);
  saved.end_layer();
  kept.emplace_back(large, false);
  CHECK(store.totals().bytes_out == 0);
  CHECK(kept[0].unpack().data_ptr() == host.data_ptr());
  CHECK(kept[1].unpack().data_ptr() == small.data_ptr());
  CHECK(kept[2].unpack().data_ptr() == large.data_ptr());
  CHECK(kept[3].unpack().data_ptr() == large.data_ptr());
  kept.clear();
  device.release(slab);
}

TEST_CASE("torch's tensors count as device memory to the byte, from any size class") {
  device::Device& device = test_device();
  const std::int64_t before = device.usage(Pool::device).now;
  for (const std::int64_t bytes : {1, 255, 256, 257, 4096, 4097, 1 << 20, (1 << 20) + 1}) {
    INFO(bytes);
    at::Tensor tensor = at::empty({bytes}, at::TensorOptions().dtype(at::kByte));
    CHECK(device.usage(Pool::device).now == before + bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64 == 0);
    tensor.fill_(7);
    CHECK(tensor.storage().data_ptr().get_context() == tensor.data_ptr());
    tensor.reset();
    CHECK(device.usage(Pool::device).now == before);
  }
}

}  // namespace rr::model
