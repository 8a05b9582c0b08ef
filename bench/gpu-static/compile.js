// compile.js: fatbins of all kernels, made by the rules of native/kernels/kernels.cmake.
import { execFileSync } from 'node:child_process'
import { availableParallelism } from 'node:os'
import path from 'node:path'
import { gpus } from './occupancy.js'

const root = path.resolve(import.meta.dirname, '../..')

/** The release of nvcc; undefined without one. @returns {string | undefined} */
export function nvccRelease() {
  try {
    return execFileSync('nvcc', ['--version'], { encoding: 'utf8' }).match(/release ([\d.]+)/)?.[1]
  } catch {
    return undefined
  }
}

/** Compiles what has changed for all targets; the folder of the fatbins. */
export function compileKernels() {
  const folder = path.join(root, 'build/gpu-static')
  const archs = Object.keys(gpus).join(',')
  const cmake = (/** @type {string[]} */ ...args) =>
    execFileSync('cmake', args, { cwd: root, stdio: ['ignore', 'ignore', 'inherit'] })
  cmake('-S', root, '-B', folder, `-DDGX_SPARK_CUDA_ARCHS=${archs}`, '-DDGX_SPARK_FATBINS=')
  cmake('--build', folder, '--target', 'kernels', '--parallel', `${availableParallelism()}`)
  return folder
}
