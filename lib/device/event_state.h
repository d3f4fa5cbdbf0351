// Private: the base of every back end's event, so that several back ends can live in one program.
#pragma once

#include "device/device.h"

namespace rr::device {

struct Event::State {
  virtual ~State() = default;
};

}  // namespace rr::device
