// The two globals of the program, both asked for by torch.
//
// The allocator counts live bytes (but those of an Uncounted) as the device pool of the one Device
// and keeps freed blocks in size classes: a fresh large block costs more in page faults than the
// work on it.
#include "model/torch_globals.h"

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/engine.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "model/model.h"

namespace rr::model {

namespace {

// ---- allocator --------------------------------------------------------------------------------

constexpr std::size_t kPrefix = 64;  // before the data, so that both stay aligned to 64 bytes
constexpr int kStepBits = 3;         // eight classes for each doubling: at most 1/8 is slack
constexpr std::size_t kSmallest = 256;
constexpr std::size_t kNumClasses = 64 << kStepBits;

thread_local bool uncounted = false;

struct Header {
  std::size_t bytes;  // counted
  std::size_t index;  // size class
};

std::size_t class_of(std::size_t bytes) {
  bytes = std::max(bytes, kSmallest);
  const int shift = std::bit_width(bytes - 1) - 1 - kStepBits;
  const std::size_t step = (bytes - 1) >> shift;  // 8 .. 15
  return (static_cast<std::size_t>(shift) << kStepBits) + step - (1U << kStepBits);
}
std::size_t class_bytes(std::size_t index) {
  const std::size_t shift = index >> kStepBits;
  const std::size_t step = (index & ((1U << kStepBits) - 1)) + (1U << kStepBits);
  return (step + 1) << shift;
}

class CountingAllocator final : public c10::Allocator {
 public:
  void set_device(device::Device* device) { device_ = device; }

  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = bytes == 0 ? nullptr : take(bytes);
    // The context equals the data pointer: oneDNN's operations insist on it.
    return {data, data, &CountingAllocator::free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &CountingAllocator::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static CountingAllocator& instance() {
    // Never destroyed: tensors of other statics may outlive any order of destruction.
    static auto* allocator = new CountingAllocator;
    return *allocator;
  }

 private:
  void* take(std::size_t bytes) {
    const std::size_t index = class_of(bytes);
    void* block = cached(index);
    if (block == nullptr)
      block = std::aligned_alloc(64, round_up_to_64(class_bytes(index)) + kPrefix);
    if (block == nullptr)
      throw Error("no memory for a tensor of " + std::to_string(bytes) + " bytes");
    const std::size_t counted = uncounted ? 0 : bytes;
    new (block) Header{counted, index};
    if (device_ != nullptr) device_->report(Pool::device, static_cast<std::int64_t>(counted));
    return static_cast<char*>(block) + kPrefix;
  }
  static std::size_t round_up_to_64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

  void* cached(std::size_t index) {
    const std::lock_guard lock(mutex_);
    std::vector<void*>& blocks = free_[index];
    if (blocks.empty()) return nullptr;
    void* block = blocks.back();
    blocks.pop_back();
    return block;
  }

  static void free(void* data) {
    if (data == nullptr) return;
    CountingAllocator& self = instance();
    void* block = static_cast<char*>(data) - kPrefix;
    const Header header = *static_cast<Header*>(block);
    if (self.device_ != nullptr) {
      self.device_->report(Pool::device, -static_cast<std::int64_t>(header.bytes));
    }
    const std::lock_guard lock(self.mutex_);
    self.free_[header.index].push_back(block);
  }

  std::mutex mutex_;
  std::array<std::vector<void*>, kNumClasses> free_;
  device::Device* device_ = nullptr;
};

// ---- engine -----------------------------------------------------------------------------------

thread_local HookFactory* hook_factory = nullptr;

class HookEngine final : public torch::autograd::Engine {
 public:
  ~HookEngine() override { stop(); }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return hook_factory == nullptr ? nullptr : hook_factory->make();
  }
  static torch::autograd::Engine& instance() {
    static HookEngine engine;
    return engine;
  }
};

bool installed = false;

}  // namespace

void set_hook_factory(HookFactory* factory) { hook_factory = factory; }
Uncounted::Uncounted() : before_(uncounted) { uncounted = true; }
Uncounted::~Uncounted() { uncounted = before_; }

bool torch_globals_installed() { return installed; }

void install_torch_globals(device::Device& device, int threads) {
  CountingAllocator::instance().set_device(&device);
  if (!installed) {
    c10::SetCPUAllocator(&CountingAllocator::instance(), /*priority=*/100);
    torch::autograd::set_default_engine_stub(&HookEngine::instance);
    installed = true;
  }
  at::set_num_threads(threads);
}

void release_torch_globals() { CountingAllocator::instance().set_device(nullptr); }

}  // namespace rr::model
