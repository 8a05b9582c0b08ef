// native.ts: the contract with the addon, and the only place where a .node file is loaded.
import { createRequire } from 'node:module'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { SparkError } from './core/errors.js'
import { debug } from './core/log.js'

/** Everything the addon exports, in the order of native/addon.cc. */
export interface Addon {
  /** Hands the error class over. Called once by the loader. */
  initialize(errorClass: typeof SparkError): void

  // kernels
  /** Performs an operation of lib/runtime/kernels.ts on the CPU before it returns. */
  run(op: string, args: object): void
  /** The same off the JavaScript thread; operands must not be touched until the promise settles. */
  runAsync(op: string, args: object): Promise<void>
  /** Threads a CPU kernel may use; 0 means one per core. */
  setThreads(count: number): void
}

/** The addon, or why it could not be loaded. */
export type AddonState = { addon: Addon; path: string } | { addon: null; reason: string }

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '..')
let state: AddonState | undefined

/** Loads the addon on the first call; later calls give the same answer. Never throws. */
export function loadAddon(): AddonState {
  state ??= tryLoad()
  return state
}

/**
 * The addon.
 * @throws SparkError ERR_NO_NATIVE with the reasons and the next command when no native build loads
 */
export function requireAddon(): Addon {
  const loaded = loadAddon()
  if (loaded.addon) return loaded.addon
  throw new SparkError(
    'ERR_NO_NATIVE',
    `the native addon could not be loaded: ${loaded.reason}\n` +
      '  - on linux x64 and arm64 (glibc 2.34+) the package brings a prebuilt addon: reinstall dgx-spark\n' +
      '  - elsewhere build it: node node_modules/dgx-spark/native/build.cjs (needs cmake and a C++20 compiler)',
  )
}

function tryLoad(): AddonState {
  if (process.env.DGX_SPARK_BUILD === 'none') return { addon: null, reason: 'DGX_SPARK_BUILD=none' }
  const require = createRequire(import.meta.url)
  try {
    let addon: Addon
    let file: string
    if (process.env.DGX_SPARK_BUILD === 'debug') {
      addon = require('bindings')({ bindings: 'dgx_spark', module_root: root })
      file = path.join(root, 'build', 'Debug', 'dgx_spark.node')
    } else {
      const build = require('node-gyp-build')
      file = build.path(root)
      addon = build(root)
    }
    addon.initialize(SparkError)
    debug(`addon loaded from ${file}`)
    return { addon, path: file }
  } catch (error) {
    return { addon: null, reason: (error as Error).message }
  }
}
