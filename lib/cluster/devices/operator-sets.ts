// operator-sets.ts: the (operator, dtype) pairs of each backend of ours, from the tables that plans are made of.
import type { Precision } from '../../core/config.js'
import type { GpuInfo } from '../../hardware/gpu.js'
import { hostOperators } from '../../model/host/index.js'
import { loadAddon } from '../../native.js'
import { families, loweredOperators } from '../../plan/lower/index.js'
import type { BackendCapability, OperatorSet } from './device-record.js'

/** Families whose kernels take every element type; the others compute in f32, and take f16, bf16 and f64 through it. */
const anyType: readonly (keyof typeof families)[] = [
  'constant',
  'elementwise',
  'gather',
  'reduce',
  'reshape',
  'search',
  'slice',
]

/** Families that multiply weights, which may be stored in narrow formats. */
const withWeights: readonly (keyof typeof families)[] = [
  'attention',
  'dora',
  'experts',
  'gather',
  'matmul',
  'quantize',
]

const floats = ['f32', 'f16', 'bf16', 'f64']
const integers = ['i64', 'i32', 'i16', 'i8', 'u64', 'u32', 'u16', 'u8', 'bool']
const narrow = ['f8_e4m3', 'f8_e5m2', 'f4', 'i4', 'u4']

const dtypeOfPrecision: Readonly<Record<Precision, string>> = {
  fp32: 'f32',
  fp16: 'f16',
  bf16: 'bf16',
  fp8: 'f8_e4m3',
  nvfp4: 'f4',
}

const qualified = (domain: string, op: string): string => (domain === '' ? op : `${domain}::${op}`)

/** Operators of families that pass a test, sorted. */
function operatorsOf(names: readonly string[]): Set<string> {
  const chosen = Object.entries(families).filter(([family]) => names.includes(family))
  const pairs = chosen.flatMap(([, family]) =>
    Object.entries(family).flatMap(([domain, rules]) => Object.keys(rules).map(op => qualified(domain, op))),
  )
  return new Set(pairs)
}

let sets: readonly OperatorSet[] | undefined

/** Operators that run on any backend of ours, grouped by the element types that they take. */
export function ownOperatorSets(): readonly OperatorSet[] {
  if (sets) return sets
  const [any, weights] = [operatorsOf(anyType), operatorsOf(withWeights)]
  const groups = new Map<string, { operators: string[]; dtypes: readonly string[] }>()
  const lowered = [...loweredOperators()].flatMap(([domain, names]) => names.map(op => qualified(domain, op)))
  for (const name of new Set([...lowered, ...hostOperators])) {
    const isHost = !lowered.includes(name)
    const dtypes = [
      ...floats,
      ...(isHost || any.has(name) ? integers : []),
      ...(weights.has(name) ? narrow : []),
    ]
    const key = dtypes.join()
    const group = groups.get(key) ?? { operators: [], dtypes }
    group.operators.push(name)
    groups.set(key, group)
  }
  sets = [...groups.values()].map(({ operators, dtypes }) => ({ operators: operators.sort(), dtypes }))
  return sets
}

/** What the CPU computes here: with the addon's kernels, or in JavaScript. */
export function cpuCapabilities(): BackendCapability[] {
  const operators = ownOperatorSets()
  const { addon } = loadAddon()
  const js: BackendCapability = { name: 'js', operators, native: ['f32', 'f64'] }
  if (!addon) return [js]
  const bf16 = addon.cpuBf16Support() === 'none' ? [] : ['bf16']
  return [{ name: 'cpu', operators, native: ['f32', 'f64', ...bf16] }, js]
}

/** What a GPU computes; nothing where no kernels run on it. */
export function gpuCapabilities({ vendor, problem, supportClass, precision }: GpuInfo): BackendCapability[] {
  const hasKernels = (loadAddon().addon?.kernelFamilies() ?? []).length > 0
  const runs = vendor === 'nvidia' && problem === null && hasKernels
  if (!runs || (supportClass !== 'full' && supportClass !== 'experimental')) return []
  const native = (Object.keys(precision) as Precision[]).filter(name => precision[name] === 'native')
  return [{ name: 'cuda', operators: ownOperatorSets(), native: native.map(name => dtypeOfPrecision[name]) }]
}
