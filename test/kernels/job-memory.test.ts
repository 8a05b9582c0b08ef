// Operands of asynchronous calls on the CPU, which JavaScript may hand on while they run.
import t from 'tap'
import { verifyCases } from '#lib/diagnostics/verify/cases.js'
import { ownerOf } from '#lib/diagnostics/verify/values.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { Kernels } from '#lib/kernels/kernels.js'
import { openKernels } from '#lib/kernels/open.js'
import { backends } from '../fixtures/backends.js'
import { takeAway, transfer } from '../fixtures/values/odd-values.js'

/** What the types of Node lack. */
declare const WebAssembly: {
  readonly Memory: new (pages: {
    initial: number
    maximum: number
  }) => {
    readonly buffer: ArrayBuffer
    grow(pages: number): void
  }
}

/** What operations write that cases do not compare. */
const alsoWritten = ['scratch', 'keyCache', 'valueCache', 'keyScales', 'valueScales']

type Output = (path: string) => ArrayBufferView

/** Every array in the arguments of an operation. */
function arraysOf(args: unknown): ArrayBufferView[] {
  if (ArrayBuffer.isView(args)) return [args]
  return typeof args === 'object' && args !== null ? Object.values(args).flatMap(arraysOf) : []
}

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength)

const equal = (a: ArrayBufferView, b: ArrayBufferView): boolean =>
  Buffer.compare(bytesOf(a), bytesOf(b)) === 0

t.test('memory of operands on cpu', { skip: !backends.includes('cpu') }, async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  const cases = verifyCases(jsKernels).map(current => ({
    ...current,
    made: (): { args: never; output: Output } => {
      const args = structuredClone(current.args())
      const output = (path: string) => {
        const [owner, name] = ownerOf(args, path)
        return owner[name]!
      }
      return { args: args as never, output }
    },
  }))

  t.test('inputs may be transferred at once', async t => {
    for (const { op, variant, outputs, made } of cases) {
      const [expected, given] = [made(), made()]
      kernels.runSync(op, expected.args)
      const run = kernels.run(op, given.args)
      const written = [...outputs, ...alsoWritten].map(given.output)
      for (const array of arraysOf(given.args)) if (!written.includes(array as never)) transfer(array)
      await run
      t.ok(
        outputs.every(path => equal(given.output(path), expected.output(path))),
        `${op} ${variant}`,
      )
    }
  })

  t.test('an output that is transferred is lost, the others are written', async t => {
    for (const { op, variant, outputs, made } of cases) {
      const [expected, given] = [made(), made()]
      const [lost, ...kept] = outputs
      if ((given.output(lost!) as Float32Array).length === 0) continue
      kernels.runSync(op, expected.args)
      const run = kernels.run(op, given.args)
      transfer(given.output(lost!))
      await t.rejects(run, { code: 'ERR_DISPOSED', message: /was detached while/ }, `${op} ${variant}`)
      t.ok(kept.every(path => equal(given.output(path), expected.output(path))))
    }
  })

  t.test('calls side by side write into one array', async t => {
    const [rows, cols] = [33, 7]
    const y = new Float32Array(rows * cols * 3)
    const columns = Array.from({ length: 3 }, (_, part) =>
      kernels.run('copyStrided', {
        dtype: 'f32',
        shape: [rows, cols],
        srcOffset: 0,
        srcStrides: [cols, 1],
        dstOffset: part * cols,
        dstStrides: [3 * cols, 1],
        src: new Float32Array(rows * cols).fill(part + 1),
        dst: y,
      }),
    )
    await Promise.all(columns)
    t.ok(y.every((value, i) => value === Math.floor((i % (3 * cols)) / cols) + 1))
  })

  t.test('memory that was gone before', async t => {
    for (const backend of [kernels, jsKernels]) {
      const [x, out] = [Float32Array.of(1, -3, 2), new Float32Array(1)]
      const args = { dtype: 'f32', count: 3, src: x, out } as const
      transfer(x)
      const gone = { code: 'ERR_DISPOSED', message: 'src lies in memory that has been detached or disposed' }
      await t.rejects(async () => backend.run('amax', args), gone, backend.backend)
      t.throws(() => backend.runSync('amax', args), gone, backend.backend)
    }
  })

  t.test('arguments that change while they are read', async t => {
    const [src, out] = [new Float32Array(1 << 16).fill(2), new Float32Array(1)]
    const args = {
      dtype: 'f32' as const,
      count: src.length,
      src,
      get out() {
        transfer(src)
        return out
      },
    }
    await kernels.run('amax', args)
    t.equal(out[0], 2)
  })
})

t.test('held memory', { skip: !backends.includes('cpu') }, async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  const amax = (src: Float32Array, out: Float32Array): Parameters<Kernels['run']> => [
    'amax',
    { dtype: 'f32', count: src.length, src, out } as never,
  ]

  t.test('is used where it is', async t => {
    const [src, out] = [new Float32Array(1 << 16).fill(1), new Float32Array(1)]
    const { array } = await kernels.hold(src)
    t.equal(array, src)
    transfer(src)
    t.equal(src.length, 1 << 16)
    const call = amax(src, out)
    await kernels.run(...call)
    t.equal(out[0], 1)
    if (takeAway(src)) await t.rejects(async () => kernels.run(...call), { code: 'ERR_DISPOSED' })
  })

  t.test('of WebAssembly may grow', async t => {
    for (const backend of [kernels, jsKernels]) {
      const memory = new WebAssembly.Memory({ initial: 1, maximum: 4 })
      const [src, out] = [new Float32Array(memory.buffer, 0, 100), new Float32Array(1)]
      await backend.hold(src)
      const [op, args] = amax(src, out)
      const steps = backend.prepare([{ op, args }])
      src[7] = -5
      await steps.run()
      t.equal(out[0], 5)
      memory.grow(1)
      t.equal(src.length, 0)
      await t.rejects(async () => steps.run(), { code: 'ERR_DISPOSED' }, backend.backend)
    }
  })

  t.test('of threads and of blocks needs no hold', async t => {
    const shared = new Float32Array(new SharedArrayBuffer(4 * 1000)).fill(3)
    const out = new Float32Array(new SharedArrayBuffer(4))
    await kernels.hold(shared)
    await kernels.run(...amax(shared, out))
    t.equal(out[0], 3)
  })
})
