# cpu_isa.cmake: keeps the units of instruction sets (core/cpu_isa.h) in SOURCES that the architecture has, and compiles
# each with its instruction set.

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(AVX512 "-march=x86-64-v4 -mprefer-vector-width=512")
  set(ISA_FLAGS "avx2=-march=x86-64-v3" "avx512=${AVX512}" "avx512bf16=${AVX512} -mavx512bf16 -mavx512vnni"
    "amx=${AVX512} -mamx-tile -mamx-bf16 -mamx-int8")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(ISA_FLAGS "neon=-march=armv8-a" "neonbf16=-march=armv8.2-a+bf16"
    "neoni8mm=-march=armv8.2-a+bf16+i8mm")
endif()
list(FILTER SOURCES EXCLUDE REGEX "/simd/isa_[a-z0-9]+\\.cc$")
set(ISA_UNITS ${CMAKE_CURRENT_LIST_DIR}/backend/cpu/simd/isa_plain.cc)
foreach(pair ${ISA_FLAGS})
  string(REGEX MATCH "^([a-z0-9]+)=(.*)$" _ "${pair}")
  set(unit ${CMAKE_CURRENT_LIST_DIR}/backend/cpu/simd/isa_${CMAKE_MATCH_1}.cc)
  # The intrinsics of GCC 12 read variables that they leave undefined on purpose.
  separate_arguments(flags NATIVE_COMMAND "${CMAKE_MATCH_2}")
  set_source_files_properties(${unit} PROPERTIES
    COMPILE_OPTIONS "${flags};$<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized;-Wno-maybe-uninitialized>")
  list(APPEND ISA_UNITS ${unit})
endforeach()
list(APPEND SOURCES ${ISA_UNITS})
