// run_recipe: argv in, exit code out. The only catch-all.
#include <clocale>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "app/run.h"
#include "app/terminal.h"
#include "base/base.h"
#include "base/log.h"
#include "comm/comm.h"
#include "train/train.h"

namespace {

// Ends the job when one rank alone has failed: its peers wait for it in some collective.
int end_alone(rr::comm::World& world, const std::string& message, int code) {
  constexpr std::string_view kWord = "error: ";
  // The log names ranks other than 0 by itself.
  if (world.size() > 1 && world.rank() == 0) {
    rr::log_error("rank 0: " + message.substr(message.starts_with(kWord) ? kWord.size() : 0));
  } else {
    rr::log_error(message);
  }
  if (world.size() > 1) world.abort(code);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace rr;
  std::setlocale(LC_ALL, "C");
  train::install_signal_handlers();
  std::unique_ptr<comm::World> world;
  try {
    world = comm::launched() ? comm::make_mpi_world() : comm::make_self_world();
    start_logging(world->rank(), world->size(),
                  app::wants_colour(app::Colour::automatic, comm::launched()));
    return app::run(argv[0], {argv + 1, argv + argc}, *world);
  } catch (const UsageError& error) {
    return world ? end_alone(*world, error.what(), 2) : 2;
  } catch (const std::exception& error) {
    if (world) return end_alone(*world, std::string("error: ") + error.what(), 1);
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
