// config.ts: the configuration from environment variables. Explicit options of a call win over it; a DGX_SPARK_* name
// wins over its alias, and the alias over the default. An invalid value warns and counts as not set.
import path from 'node:path'
import { type LogLevel, setLogLevel, warnOnce } from './log.js'

/** Precision modes a model can run in. */
export type Precision = 'fp32' | 'fp16' | 'bf16' | 'fp8' | 'nvfp4'

/** Engines a computation can run on. */
export type BackendName = 'auto' | 'cuda' | 'cpu' | 'js'

/** Instruction sets of the CPU kernels. */
export type CpuIsa = 'plain' | 'avx2' | 'avx512' | 'avx512-bf16' | 'amx' | 'neon' | 'neon-bf16' | 'neon-i8mm'

/** Settings from the environment. */
export interface Config {
  /** Whether NVIDIA GPUs may be used. false: `auto` behaves as if none were present. */
  readonly enabled: boolean
  /** Precision mode, or null for the automatic choice. */
  readonly precision: Precision | null
  /** Engine for calls that name none. */
  readonly backend: BackendName
  /** Whether managed memory may be used where the device has it. */
  readonly unifiedMemory: boolean
  /** Whether a GPU replays the runs of a model as CUDA graphs; otherwise each run enqueues its kernels one by one. */
  readonly cudaGraphs: boolean
  /** Whether FP4 tensor cores may be used on devices where they pass the self-test. */
  readonly fp4TensorCores: boolean
  /** Threads of a CPU kernel; 0: one per core, or as many as a CPU quota feeds. */
  readonly threads: number
  /** Instruction set of CPU kernels, or null for the best one of the machine. */
  readonly cpuIsa: CpuIsa | null
  /** Folder in which packed weights are kept for later processes, or null for none. */
  readonly weightCache: string | null
  /** Folder with the identity, certificates and audit log of this node of a cluster, or null for the user's data folder. */
  readonly clusterHome: string | null
  /** The command that decodes videos. */
  readonly ffmpeg: string
  /** Verbosity of the log on stderr. */
  readonly log: LogLevel
}

/** A setting for display, with its origin. */
export interface ConfigEntry {
  readonly name: keyof Config
  /** The variable that sets it; some have aliases. */
  readonly variable: string
  readonly value: Config[keyof Config]
  /** The variable that decided, or 'default'. */
  readonly source: string
}

/** All precision modes, widest first. */
export const precisions: readonly Precision[] = ['fp32', 'fp16', 'bf16', 'fp8', 'nvfp4']

/** All engines. */
export const backendNames: readonly BackendName[] = ['auto', 'cuda', 'cpu', 'js']

const cpuIsas: readonly CpuIsa[] = [
  'plain',
  'avx2',
  'avx512',
  'avx512-bf16',
  'amx',
  'neon',
  'neon-bf16',
  'neon-i8mm',
]

type Environment = Readonly<Record<string, string | undefined>>

/** A variable and how its text becomes a value; undefined: the text is invalid. */
interface Variable<T> {
  readonly name: string
  readonly parse: (text: string) => T | undefined
  readonly allowed: string
  /** Shared with other programs (CUDA, DEBUG): an unknown value is ignored without a warning. */
  readonly shared?: boolean
}

interface Warning {
  readonly variable: string
  readonly message: string
}

const flagValues = new Map([
  ...['1', 'true', 'on', 'yes'].map(text => [text, true] as const),
  ...['0', 'false', 'off', 'no'].map(text => [text, false] as const),
])

const parseFlag = (text: string): boolean | undefined => flagValues.get(text.toLowerCase())

/** Threads that a kernel may be given at most. */
export const maxThreads = 1024

const parseThreads = (text: string): number | undefined =>
  /^\d{1,4}$/.test(text) && Number(text) <= maxThreads ? Number(text) : undefined

const flag = (name: string): Variable<boolean> => ({ name, parse: parseFlag, allowed: '0 or 1' })

const absoluteFolder = (name: string): Variable<string> => ({
  name,
  parse: text => (path.isAbsolute(text) ? text : undefined),
  allowed: 'the absolute path of a folder',
})

const oneOf = <T extends string>(name: string, values: readonly T[]): Variable<T> => ({
  name,
  parse: text => values.find(value => value === text.toLowerCase()),
  allowed: values.join(', '),
})

/**
 * The precision mode that `text` names, in any case; `fp4` is an alias of `nvfp4`.
 * @returns undefined when it names none
 */
export function parsePrecision(text: string): Precision | undefined {
  const lower = text.toLowerCase()
  return precisions.find(precision => precision === (lower === 'fp4' ? 'nvfp4' : lower))
}

const precision = (name: string): Variable<Precision> => ({
  name,
  parse: parsePrecision,
  allowed: `${precisions.join(', ')}, or fp4 for nvfp4`,
})

/** Reads `env`. Pure: warnings are returned, not emitted. */
export function readConfig(env: Environment): {
  entries: ConfigEntry[]
  config: Config
  warnings: Warning[]
} {
  const entries: ConfigEntry[] = []
  const warnings: Warning[] = []

  function setting<T extends Config[keyof Config]>(
    name: keyof Config,
    fallback: T,
    variables: readonly [Variable<T>, ...Variable<T>[]],
  ): void {
    const [{ name: own }] = variables
    for (const variable of variables) {
      const text = env[variable.name]?.trim()
      if (!text) continue
      const value = variable.parse(text)
      if (value !== undefined) {
        entries.push({ name, variable: own, value, source: variable.name })
        return
      }
      if (variable.shared) continue
      const message = `${variable.name}=${text} is invalid; allowed: ${variable.allowed}. It is ignored.`
      warnings.push({ variable: variable.name, message })
    }
    entries.push({ name, variable: own, value: fallback, source: 'default' })
  }

  setting('enabled', true, [flag('DGX_SPARK_ENABLED'), flag('OPENPILOT_DGX_ENABLED')])
  setting<Precision | null>('precision', null, [
    precision('DGX_SPARK_PRECISION'),
    precision('OPENPILOT_DGX_PRECISION'),
  ])
  setting<BackendName>('backend', 'auto', [
    oneOf('DGX_SPARK_BACKEND', backendNames),
    {
      name: 'CUDA',
      parse: text => (text === '1' ? 'cuda' : text === '0' ? 'cpu' : undefined),
      allowed: '0, 1',
      shared: true,
    },
  ])
  setting('unifiedMemory', true, [flag('DGX_SPARK_UNIFIED_MEMORY')])
  setting('cudaGraphs', true, [flag('DGX_SPARK_CUDA_GRAPHS')])
  setting('fp4TensorCores', true, [flag('DGX_SPARK_NVFP4')])
  setting('threads', 0, [
    { name: 'DGX_SPARK_THREADS', parse: parseThreads, allowed: '0 (one per core) to 1024' },
  ])
  setting<CpuIsa | null>('cpuIsa', null, [oneOf('DGX_SPARK_CPU_ISA', cpuIsas)])
  setting<string | null>('weightCache', null, [absoluteFolder('DGX_SPARK_WEIGHT_CACHE')])
  setting<string | null>('clusterHome', null, [absoluteFolder('DGX_SPARK_CLUSTER_HOME')])
  setting('ffmpeg', 'ffmpeg', [
    { name: 'DGX_SPARK_FFMPEG', parse: text => text, allowed: 'a command or path' },
  ])
  setting<LogLevel>('log', 'silent', [
    oneOf('DGX_SPARK_LOG', ['silent', 'debug']),
    {
      name: 'DEBUG',
      parse: text => (/^[1-9]\d*$|\bdgx-spark\b/.test(text) ? 'debug' : undefined),
      allowed: '1, dgx-spark',
      shared: true,
    },
  ])
  applyDisable(env, entries, warnings)
  const config = Object.fromEntries(entries.map(entry => [entry.name, entry.value])) as unknown as Config
  return { entries, config, warnings }
}

/** OPENPILOT_DISABLE_DGX=1 is a rollback switch: it wins over every ENABLED=1. */
function applyDisable(env: Environment, entries: ConfigEntry[], warnings: Warning[]): void {
  const variable = flag('OPENPILOT_DISABLE_DGX')
  const text = env[variable.name]?.trim()
  if (!text) return
  const disable = variable.parse(text)
  if (disable === undefined) {
    const message = `${variable.name}=${text} is invalid; allowed: ${variable.allowed}. It is ignored.`
    warnings.push({ variable: variable.name, message })
  }
  if (!disable) return
  const enabled = entries.find(entry => entry.name === 'enabled')!
  if (enabled.value === true && enabled.source !== 'default') {
    const message = `${variable.name}=1 wins over ${enabled.source}=1: NVIDIA GPUs are not used.`
    warnings.push({ variable: variable.name, message })
  }
  entries[entries.indexOf(enabled)] = { ...enabled, value: false, source: variable.name }
}

let current: ReturnType<typeof readConfig> | undefined

function load(): ReturnType<typeof readConfig> {
  if (current) return current
  current = readConfig(process.env)
  setLogLevel(current.config.log)
  for (const { variable, message } of current.warnings) warnOnce('SPARK_CONFIG', variable, message)
  if (current.config.precision) warnIfExperimental(current.config.precision)
  return current
}

/** The configuration of this process; the environment is read at the first call. */
export function getConfig(): Config {
  return load().config
}

/** The configuration with the variable each value came from, in the order of {@link Config}. */
export function getConfigEntries(): readonly ConfigEntry[] {
  return load().entries
}

/** Warns once that `mode` is experimental, if it is. */
export function warnIfExperimental(mode: Precision): void {
  if (mode !== 'nvfp4') return
  warnOnce(
    'SPARK_EXPERIMENTAL',
    mode,
    'Precision nvfp4 is experimental: weights keep 4 bits, so compare accuracy with fp32 before relying on it.',
  )
}
