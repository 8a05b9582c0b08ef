// mpi_library.cc: loading Open MPI.
#include "collective/mpi_library.h"

#include <cstring>

#include "core/error.h"

namespace spark::collective::mpi {
namespace {

template <typename Entry>
void require(const Library& library, Entry& entry, const char* symbol) {
  if (library.bind(entry, symbol)) return;
  throw Error("ERR_UNSUPPORTED", message(library.name(), " lacks ", symbol,
                                         ", so it is no Open MPI 4 or 5: install that (libopenmpi3)"));
}

}  // namespace

Mpi::Mpi() {
  if (!library_.ok()) {
    throw Error("ERR_UNSUPPORTED", message("kind 'mpi' needs Open MPI 4 or 5: apt-get install openmpi-bin (",
                                           library_.reason(), ")"));
  }
  require(library_, MPI_Get_library_version, "MPI_Get_library_version");
  char version[1024] = {};  // MPI_MAX_LIBRARY_VERSION_STRING is 256
  int length = 0;
  MPI_Get_library_version(version, &length);
  if (std::strncmp(version, "Open MPI v4", 11) != 0 && std::strncmp(version, "Open MPI v5", 11) != 0) {
    throw Error("ERR_UNSUPPORTED", message(library_.name(), " is ", std::string(version).substr(0, 60),
                                           "; kind 'mpi' needs Open MPI 4 or 5"));
  }
#define SPARK_BIND(name) require(library_, name, #name)
  SPARK_BIND(MPI_Initialized);
  SPARK_BIND(MPI_Init_thread);
  SPARK_BIND(MPI_Finalize);
  SPARK_BIND(MPI_Error_string);
  SPARK_BIND(MPI_Comm_rank);
  SPARK_BIND(MPI_Comm_size);
  SPARK_BIND(MPI_Comm_set_errhandler);
  SPARK_BIND(MPI_Isend);
  SPARK_BIND(MPI_Irecv);
  SPARK_BIND(MPI_Improbe);
  SPARK_BIND(MPI_Imrecv);
  SPARK_BIND(MPI_Get_count);
  SPARK_BIND(MPI_Iallreduce);
  SPARK_BIND(MPI_Iallgather);
  SPARK_BIND(MPI_Ibcast);
  SPARK_BIND(MPI_Test);
  SPARK_BIND(MPI_Cancel);
#undef SPARK_BIND
  require(library_, world, "ompi_mpi_comm_world");
  require(library_, byte, "ompi_mpi_byte");
  require(library_, real, "ompi_mpi_float");
  require(library_, sum, "ompi_mpi_op_sum");
  require(library_, errors_return, "ompi_mpi_errors_return");
}

const Mpi& Mpi::get() {
  static const Mpi mpi;
  return mpi;
}

void Mpi::check(int result, const char* doing) const {
  if (result == kSuccess) return;
  char text[1024] = {};  // MPI_MAX_ERROR_STRING is 256
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw Error("ERR_IO", message(doing, ": ", text));
}

}  // namespace spark::collective::mpi
