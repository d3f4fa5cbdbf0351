# Pinned third-party versions; read by scripts/setup and by CMake (as text).
TORCH_VERSION=2.11.0
CUDA_WHEEL_VERSION=13.0
DEBIAN_PACKAGES="g++ cmake ninja-build mold ccache git python3 python3-pip ca-certificates libcli11-dev libyaml-cpp-dev libspdlog-dev libfmt-dev nlohmann-json3-dev catch2 libhwloc-dev libopenmpi-dev openmpi-bin"
DEBIAN_CHECK_PACKAGES="clang-format procps zsh fish groff-base"
