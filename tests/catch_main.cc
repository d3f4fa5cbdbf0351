// The main function of every Catch2 program but the MPI one.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
