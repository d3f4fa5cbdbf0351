// Placeholder of the room until its first file stands.
#include "recipe/recipe.h"
