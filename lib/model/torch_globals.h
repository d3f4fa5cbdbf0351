// What torch forces on a program as global state: its CPU allocator and its autograd engine.
// Private to the room; install_torch_globals of model.h sets both.
#pragma once

#include <memory>

namespace torch::autograd {
struct SavedVariableHooks;
}

namespace rr::model {

// Makes the hooks of one saved tensor.
class HookFactory {
 public:
  virtual ~HookFactory() = default;
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> make() = 0;
};

// Tensors that this thread saves for backward from now on go through `factory`; null: kept as they
// are.
void set_hook_factory(HookFactory* factory);
bool torch_globals_installed();

// While one lives, tensors that this thread allocates do not count as device memory: fp32 copies of
// bf16 values, which only a CPU without bf16 arithmetic needs.
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  bool before_;
};

}  // namespace rr::model
