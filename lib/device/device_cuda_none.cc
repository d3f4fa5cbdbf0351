// The build without CUDA: says which option builds it.
#include "base/base.h"
#include "device/device.h"

namespace rr::device {

std::unique_ptr<Device> make_cuda_device(int /*index*/) {
  throw Error("this build has no CUDA device: configure with -DRR_CUDA=ON (scripts/build cuda)");
}

}  // namespace rr::device
