// Placeholder of the room until its first file stands.
#include "device/device.h"
