# Imported targets over the torch wheel that scripts/setup installs into build/deps/torch-VERSION.
#
# find_package(Torch) insists on a CUDA toolkit for this wheel, so the CPU build takes c10 and
# torch_cpu as targets of its own: TorchWheel::c10, TorchWheel::torch. Libraries the wheel needs at
# load time (cupti, cudart) lie beside it; their folders go into the RPATH.
set(TorchWheel_ROOT "${CMAKE_SOURCE_DIR}/build/deps/python" CACHE PATH "Folder that holds torch/")

find_path(TorchWheel_INCLUDE_DIR ATen/ATen.h PATHS "${TorchWheel_ROOT}/torch/include"
          NO_DEFAULT_PATH)
find_library(TorchWheel_C10 c10 PATHS "${TorchWheel_ROOT}/torch/lib" NO_DEFAULT_PATH)
find_library(TorchWheel_CPU torch_cpu PATHS "${TorchWheel_ROOT}/torch/lib" NO_DEFAULT_PATH)

# The one OpenMP runtime of the process: torch's. Our loops run on its threads (lib/model/parallel.cc).
find_file(TorchWheel_GOMP libgomp.so.1 PATHS "${TorchWheel_ROOT}/torch/lib" NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  TorchWheel REQUIRED_VARS TorchWheel_INCLUDE_DIR TorchWheel_C10 TorchWheel_CPU
                TorchWheel_GOMP
  REASON_FAILURE_MESSAGE "run scripts/setup first")

if(TorchWheel_FOUND AND NOT TARGET TorchWheel::torch)
  file(GLOB TorchWheel_RUNTIME_DIRS "${TorchWheel_ROOT}/nvidia/*/lib")
  list(PREPEND TorchWheel_RUNTIME_DIRS "${TorchWheel_ROOT}/torch/lib")

  add_library(TorchWheel::c10 SHARED IMPORTED)
  set_target_properties(
    TorchWheel::c10 PROPERTIES
    IMPORTED_LOCATION "${TorchWheel_C10}"
    IMPORTED_NO_SONAME TRUE
    # After the system's folders: the wheel brings an fmt of its own, whose library it does not.
    INTERFACE_COMPILE_OPTIONS
    "SHELL:-idirafter ${TorchWheel_INCLUDE_DIR};SHELL:-idirafter ${TorchWheel_INCLUDE_DIR}/torch/csrc/api/include")
  add_library(TorchWheel::torch SHARED IMPORTED)
  set_target_properties(
    TorchWheel::torch PROPERTIES
    IMPORTED_LOCATION "${TorchWheel_CPU}"
    IMPORTED_NO_SONAME TRUE
    INTERFACE_LINK_LIBRARIES "TorchWheel::c10;${TorchWheel_GOMP}"
    INTERFACE_LINK_OPTIONS
    "LINKER:--no-as-needed,--allow-shlib-undefined,--disable-new-dtags")
endif()
