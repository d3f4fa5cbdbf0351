// Placeholder.
#include "device/device.h"
