// Every array of every operation has the type that the operation reads: where the addon refuses another one, js does, too.
import t from 'tap'
import { verifyCases } from '#lib/diagnostics/verify/cases.js'
import { openCpuKernels } from '#lib/kernels/cpu.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { Kernels } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'

requireAddon()

type Args = Record<string, unknown>

/** The arrays in the arguments of an operation, those of its weight included: a copy of the arguments with another one. */
function* replacements(args: Args): Generator<{ name: string; changed: Args }> {
  for (const [name, value] of Object.entries(args)) {
    if (ArrayBuffer.isView(value)) {
      const { length } = value as Float32Array
      const other = value instanceof BigInt64Array ? new Float32Array(length) : new BigInt64Array(length)
      yield { name, changed: { ...args, [name]: other } }
    } else if (name === 'weight') {
      for (const inner of replacements(value as Args))
        yield { name: `weight.${inner.name}`, changed: { ...args, weight: inner.changed } }
    }
  }
}

function codeOf(kernels: Kernels, op: string, args: Args): unknown {
  try {
    kernels.runSync(op as never, args as never)
    return 'none'
  } catch (error) {
    return (error as { code?: unknown }).code ?? String(error)
  }
}

t.test('arrays of another type', async t => {
  const cpu = openCpuKernels()
  const seen = new Set<string>()
  for (const { op, variant, args } of verifyCases(jsKernels)) {
    for (const { name, changed } of replacements(args() as unknown as Args)) {
      const label = `${op} ${variant} ${name}`
      if (seen.has(label)) continue
      seen.add(label)
      const [js, native] = [codeOf(jsKernels, op, changed), codeOf(cpu, op, changed)]
      // What an operation does not read may be anything.
      t.match(js, native === 'none' ? /^(none|ERR_DTYPE)$/ : /^ERR_(DTYPE|ARGUMENT)$/, label)
    }
  }
})
