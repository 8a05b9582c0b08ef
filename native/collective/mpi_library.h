// mpi_library.h: the part of Open MPI's ABI that communicators use. Versions 4 and 5 have the same; MPICH's
// handles are integers, so it is refused.
#pragma once

#include <cstddef>
#include <string>

#include "core/library.h"

namespace spark::collective::mpi {

// Handles point into the library.
using Comm = void*;
using Datatype = void*;
using Op = void*;
using Errhandler = void*;
using Request = void*;
using Message = void*;

struct Status {
  int source, tag, error, cancelled;
  size_t count;
};

constexpr int kSuccess = 0;
constexpr int kAnySource = -1;
constexpr int kThreadMultiple = 3;
inline void* const kInPlace = reinterpret_cast<void*>(1);

// libmpi.so, opened at first use.
class Mpi {
 public:
  // Throws ERR_UNSUPPORTED where there is no Open MPI 4 or 5.
  static const Mpi& get();

  // Throws ERR_IO with MPI's words.
  void check(int result, const char* doing) const;

  int (*MPI_Get_library_version)(char*, int*);
  int (*MPI_Initialized)(int*);
  int (*MPI_Init_thread)(int*, char***, int, int*);
  int (*MPI_Finalize)();
  int (*MPI_Error_string)(int, char*, int*);
  int (*MPI_Comm_rank)(Comm, int*);
  int (*MPI_Comm_size)(Comm, int*);
  int (*MPI_Comm_set_errhandler)(Comm, Errhandler);
  int (*MPI_Isend)(const void*, int, Datatype, int to, int tag, Comm, Request*);
  int (*MPI_Irecv)(void*, int, Datatype, int from, int tag, Comm, Request*);
  int (*MPI_Improbe)(int from, int tag, Comm, int* found, Message*, Status*);
  int (*MPI_Imrecv)(void*, int, Datatype, Message*, Request*);
  int (*MPI_Get_count)(const Status*, Datatype, int*);
  int (*MPI_Iallreduce)(const void*, void*, int, Datatype, Op, Comm, Request*);
  int (*MPI_Iallgather)(const void*, int, Datatype, void*, int, Datatype, Comm, Request*);
  int (*MPI_Ibcast)(void*, int, Datatype, int root, Comm, Request*);
  int (*MPI_Test)(Request*, int* done, Status*);
  int (*MPI_Cancel)(Request*);

  Comm world;
  Datatype byte, real;
  Op sum;
  Errhandler errors_return;

 private:
  Mpi();

  Library library_{{"libmpi.so.40", "libmpi.so"}, RTLD_GLOBAL};  // its plugins need its symbols
};

}  // namespace spark::collective::mpi
