// libFuzzer: any bytes as an override of a recipe.
#include <cstddef>
#include <cstdint>

#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rr::fuzz::override_text({reinterpret_cast<const char*>(data), size});
  return 0;
}
