# kernels.cmake: every native/kernels/<component>/<family>.cu becomes <family>.fatbin, embedded by kernels.S and listed in
# kernel_images.cc. Device code knows nothing of the host, so one set of fatbins serves every host architecture.
#
# DGX_SPARK_CUDA_ARCHS  environment or cache: "all", as in prebuilds, or a list such as "90" or "80,90". Default: what the
#                       GPUs of this machine run, or 121 (DGX Spark) where there is none. Always built: PTX of compute_80,
#                       for all other GPUs, and the FP4 families, for the one family of GPUs that has their instructions
# DGX_SPARK_FATBINS     environment or cache: folder of fatbins built before, used instead of running nvcc

set(DGX_SPARK_FATBINS "$ENV{DGX_SPARK_FATBINS}" CACHE PATH "Use the fatbins of this folder instead of building them")
set(portable_archs 80 86 89 90 90a 100f 120 121)
set(default_archs 121)
set(DGX_SPARK_CUDA_ARCHS "$ENV{DGX_SPARK_CUDA_ARCHS}" CACHE STRING
  "CUDA targets to build: all, or a list; empty means those of this machine")

file(GLOB_RECURSE KERNEL_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/native/kernels/*.cu)
find_program(NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
set(nvcc_version 0)
if(NVCC)
  execute_process(COMMAND ${NVCC} --version OUTPUT_VARIABLE nvcc_text)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" _ "${nvcc_text}")
  set(nvcc_version ${CMAKE_MATCH_1})
endif()

if(NOT DGX_SPARK_FATBINS AND nvcc_version VERSION_LESS 12.9)
  if(NVCC)
    set(reason "nvcc ${nvcc_version} is older than 12.9")
  else()
    set(reason "nvcc not found")
  endif()
  message(NOTICE "dgx-spark: ${reason}: the addon is built without CUDA kernels and runs on the CPU only.")
  set(KERNEL_SOURCES "")
endif()

# For each GPU of this machine the newest target of its generation that it runs.
function(find_archs_of_this_machine result)
  set(found "")
  find_program(NVIDIA_SMI nvidia-smi)
  if(NVIDIA_SMI)
    execute_process(COMMAND ${NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE capabilities ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${capabilities}")
    foreach(capability ${capabilities})
      string(REPLACE "." "" capability ${capability})
      math(EXPR generation "${capability} / 10")
      set(newest "")
      foreach(arch ${portable_archs})
        string(REGEX MATCH "^[0-9]+" number ${arch})
        math(EXPR of_generation "${number} / 10")
        if(of_generation EQUAL generation AND NOT number GREATER capability)
          set(newest ${arch})
        endif()
      endforeach()
      list(APPEND found ${newest})
    endforeach()
    list(REMOVE_DUPLICATES found)
  endif()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

string(REPLACE "," ";" archs "${DGX_SPARK_CUDA_ARCHS}")
if(archs STREQUAL "all")
  set(archs ${portable_archs})
elseif(NOT archs)
  find_archs_of_this_machine(archs)
  if(NOT archs)
    set(archs ${default_archs})
  endif()
endif()
message(STATUS "dgx-spark: CUDA targets: ${archs}")
set(gencode "")
foreach(arch ${archs})
  list(APPEND gencode -gencode arch=compute_${arch},code=sm_${arch})
endforeach()
list(APPEND gencode -gencode arch=compute_80,code=compute_80)
# Prebuilds have their own, so that npm run build after them compiles nothing.
set(fatbin_folder ${PROJECT_BINARY_DIR})
if(archs STREQUAL portable_archs)
  set(fatbin_folder ${PROJECT_BINARY_DIR}/all)
  file(MAKE_DIRECTORY ${fatbin_folder})
endif()
set(fp4_families linear_fp4_mma)
set(fp4_gencode -gencode arch=compute_120f,code=[sm_120f,sm_121f,compute_120f])

set(KERNEL_INCBINS "")
set(KERNEL_SYMBOLS "")
set(KERNEL_TABLE "")
set(fatbins "")
foreach(source ${KERNEL_SOURCES})
  get_filename_component(family ${source} NAME_WE)
  set(family_gencode ${gencode})
  if(family IN_LIST fp4_families)
    set(family_gencode ${fp4_gencode})
  endif()
  if(DGX_SPARK_FATBINS)
    set(fatbin ${DGX_SPARK_FATBINS}/${family}.fatbin)
    if(NOT EXISTS ${fatbin})
      message(FATAL_ERROR "dgx-spark: DGX_SPARK_FATBINS has no ${family}.fatbin (${fatbin}): build the kernels first")
    endif()
  else()
    set(fatbin ${fatbin_folder}/${family}.fatbin)
    add_custom_command(OUTPUT ${fatbin}
      COMMAND ${NVCC} -fatbin -t0 -std=c++17 -O3 --compress-mode=size -Werror all-warnings --fmad=false ${family_gencode}
        -I${PROJECT_SOURCE_DIR}/native -MD -MF ${fatbin}.d -o ${fatbin} ${source}
      MAIN_DEPENDENCY ${source} DEPFILE ${fatbin}.d VERBATIM COMMENT "nvcc: ${family}.fatbin")
  endif()
  list(APPEND fatbins ${fatbin})
  string(APPEND KERNEL_INCBINS "        KERNEL_IMAGE spark_kernels_${family}, \"${fatbin}\"\n")
  string(APPEND KERNEL_SYMBOLS "extern \"C\" const unsigned char spark_kernels_${family}[], spark_kernels_${family}_end[];\n")
  string(APPEND KERNEL_TABLE "    {\"${family}\", spark_kernels_${family}, spark_kernels_${family}_end},\n")
endforeach()

add_custom_target(kernels DEPENDS ${fatbins})

# Fatbins that were built elsewhere count as made by the version that releases are made with.
set(KERNELS_CUDA 13000)
if(NOT DGX_SPARK_FATBINS AND nvcc_version MATCHES "^([0-9]+)\\.([0-9]+)$")
  math(EXPR KERNELS_CUDA "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 10")
endif()

configure_file(native/kernels/kernels.S.in kernels.S @ONLY)
configure_file(native/kernels/kernel_images.cc.in kernel_images.cc @ONLY)
set_source_files_properties(${PROJECT_BINARY_DIR}/kernels.S PROPERTIES LANGUAGE ASM OBJECT_DEPENDS "${fatbins}")
target_sources(dgx_spark PRIVATE ${PROJECT_BINARY_DIR}/kernels.S ${PROJECT_BINARY_DIR}/kernel_images.cc)
