// libFuzzer: any bytes as a recipe file.
#include <cstddef>
#include <cstdint>

#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rr::fuzz::recipe_text({reinterpret_cast<const char*>(data), size});
  return 0;
}
