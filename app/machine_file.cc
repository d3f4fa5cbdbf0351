// The file of --measure-machine.
#include "app/machine_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/base.h"
#include "base/files.h"
#include "base/text.h"
#include "train/train.h"

namespace rr::app {
namespace {

constexpr const char* kFirstLine = "# This machine, measured by run_recipe --measure-machine.";

// Three significant digits: what a measurement of a second is good for.
std::string rounded(double value) { return fmt::format("{:.3g}", value); }

std::string row(const char* key, const std::string& value, const std::string& source) {
  return fmt::format("{:<31} # {}\n", fmt::format("{}: {}", key, value), source);
}

// On the CPU both pools share one memory and every copy is one of a core.
std::string machine_yaml(const train::MachineRates& rates) {
  const std::string half = fmt::format("{}", rates.memory_bytes / 2);
  const std::string copy =
      fmt::format("measured: one core copies {} GB/s", rounded(rates.copy_gbps));
  std::string text = kFirstLine;
  text += "\n# A CPU build: device and host pool share the memory, the cores are the device.\n";
  text += row("device_bytes", half, "half of the memory this process may use");
  text += row("host_bytes", half, "the other half");
  text += row("devices_per_node", "1", "the cores together are one device");
  text += row("device_tflops", rounded(rates.matmul_tflops),
              fmt::format("measured: fp32 matrix product of 1024 on {} cores", rates.cores));
  text += row("device_gbps", rounded(rates.stream_gbps),
              "measured: two reads and a write per element, all cores");
  text += row("link_gbps", rounded(rates.copy_gbps), copy);
  text += row("host_gbps", rounded(rates.stream_gbps), "the same memory as the device's");
  text += row("intra_gbps", rounded(rates.copy_gbps / 2), "ranks send by two copies");
  text += row("inter_gbps", "1", "assumed: 10 Gb/s Ethernet");
  text += row("collective_latency_us", rounded(std::max(rates.wake_us, 0.001)),
              "measured: waking a sleeping thread");
  text += row("host_core_gparams", rounded(rates.core_gparams), "measured: AdamW on one core");
  text += row("host_cores", fmt::format("{}", rates.cores), "cores this process may use");
  return text;
}

void refuse_other_file(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line == kFirstLine) return;
  throw UsageError(Problem{.key = "--measure-machine",
                           .where = "command line",
                           .what = path + " exists and was not written by --measure-machine.",
                           .remedy = "Name another file, or remove it first."});
}

}  // namespace

std::string write_machine_file(const std::string& path) {
  refuse_other_file(path);
  const std::string text = machine_yaml(train::measure_machine());
  NewFile file(path);
  file.write(text);
  file.publish();
  // --machine takes what looks like a path for one.
  const bool is_path = path.find('/') != std::string::npos || path.ends_with(".yaml");
  return fmt::format("{}wrote {}; plan with it: --machine {}", text, path,
                     is_path ? path : "./" + path);
}

}  // namespace rr::app
