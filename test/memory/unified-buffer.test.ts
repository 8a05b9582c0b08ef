// UnifiedBuffer on a machine without a GPU: host memory, views, ranges, lifetime.
import { constants } from 'node:buffer'
import { freemem } from 'node:os'
import { SparkError, UnifiedBuffer } from 'dgx-spark'
import t, { type Test } from 'tap'
import { resetWarnings } from '#lib/core/log.js'
import { requireAddon } from '#lib/native.js'
import { scriptResult } from '../fixtures/child.js'

/** Asserts that `call` throws a SparkError with `code` whose message matches. */
function refuses(t: Test, call: () => unknown, code: string, message: RegExp): void {
  t.throws(call, { name: 'SparkError', code, message })
}

t.test('host memory is zero-filled and seen by all views', async t => {
  for (const bytes of [1, 7, 4096, 2 ** 21 - 3, 2 ** 21 + 5]) {
    const buffer = await UnifiedBuffer.allocate(bytes, { kind: 'host' })
    t.equal(buffer.bytes, bytes)
    t.equal(buffer.kind, 'host')
    t.ok(buffer.zeroCopy)
    const all = buffer.view(Uint8Array)
    t.equal(all.length, bytes)
    t.ok(all.every(byte => byte === 0))
    all[bytes - 1] = 77
    t.equal(buffer.view(Uint8Array, bytes - 1)[0], 77)
    buffer.dispose()
  }
})

t.test('views have an element type, an offset and a length', async t => {
  using buffer = UnifiedBuffer.allocateSync(103)
  const floats = buffer.view(Float32Array, 8, 3)
  floats.set([1.5, -2, 3])
  t.strictSame([...buffer.view(Float32Array).subarray(2, 5)], [1.5, -2, 3])
  t.equal(buffer.view(Float32Array).length, 25, 'a rest shorter than an element is left out')
  t.equal(buffer.view(BigInt64Array, 96).length, 0)
  t.equal(buffer.view(Uint8Array, 103).length, 0)
  t.equal(buffer.view(Float64Array, 16, 1).byteOffset % 8, 0)

  refuses(t, () => buffer.view(Float32Array, 2), 'ERR_RANGE', /byteOffset is 2.*multiple of 4/)
  refuses(t, () => buffer.view(Float32Array, 0, 26), 'ERR_RANGE', /104 bytes at byteOffset 0.*103/)
  refuses(t, () => buffer.view(Uint8Array, 104), 'ERR_RANGE', /byteOffset 104/)
  refuses(t, () => buffer.view(Uint8Array, -1), 'ERR_ARGUMENT', /byteOffset.*-1/)
  refuses(t, () => buffer.view(Uint8Array, 0, 1.5), 'ERR_ARGUMENT', /length.*1\.5/)
  // @ts-expect-error not a typed array class
  refuses(t, () => buffer.view(Array), 'ERR_ARGUMENT', /typed array class/)
})

t.test('read, write and copyTo', async t => {
  using a = UnifiedBuffer.allocateSync(37)
  using b = await UnifiedBuffer.allocate(41, { kind: 'host' })
  a.write(Uint8Array.from({ length: 37 }, (_, i) => i))
  a.copyTo(b, { sourceOffset: 3, targetOffset: 11, bytes: 30 })
  const out = new Uint16Array(15)
  b.read(out, 11)
  t.strictSame(
    [...new Uint8Array(out.buffer)],
    Array.from({ length: 30 }, (_, i) => i + 3),
  )
  a.copyTo(a, { sourceOffset: 0, targetOffset: 2, bytes: 35 })
  t.strictSame([...a.view(Uint8Array, 0, 5)], [0, 1, 0, 1, 2], 'overlapping ranges')
  a.write(new DataView(new ArrayBuffer(4), 1, 3), 34)
  t.strictSame([...a.view(Uint8Array, 33)], [31, 0, 0, 0])
  a.write(new Uint8Array(new SharedArrayBuffer(2)), 0)
  a.read(new Uint8Array(0), 37)

  refuses(t, () => a.write(new Uint8Array(38)), 'ERR_RANGE', /source: 38 bytes at byteOffset 0/)
  refuses(t, () => a.read(new Uint8Array(2), 36), 'ERR_RANGE', /target: 2 bytes at byteOffset 36/)
  refuses(t, () => b.copyTo(a), 'ERR_RANGE', /target: 41 bytes/)
  refuses(t, () => a.copyTo(b, { sourceOffset: 38 }), 'ERR_RANGE', /source/)
  // @ts-expect-error not a view
  refuses(t, () => a.write([1, 2]), 'ERR_ARGUMENT', /source must be a typed array/)
  // @ts-expect-error not a buffer
  refuses(t, () => a.copyTo({}), 'ERR_ARGUMENT', /target must be a UnifiedBuffer/)
  // @ts-expect-error a misspelled option
  refuses(t, () => a.copyTo(b, { offset: 1 }), 'ERR_ARGUMENT', /no option 'offset'/)
})

t.test('bad arguments of allocate', async t => {
  for (const bytes of [0, -1, 1.5, Number.NaN, '8', 2 ** 60]) {
    // @ts-expect-error some are not numbers
    await t.rejects(UnifiedBuffer.allocate(bytes), { code: 'ERR_ARGUMENT' }, String(bytes))
    // @ts-expect-error some are not numbers
    refuses(t, () => UnifiedBuffer.allocateSync(bytes), 'ERR_ARGUMENT', /bytes must be/)
  }
  // @ts-expect-error an unknown kind
  await t.rejects(UnifiedBuffer.allocate(8, { kind: 'texture' }), { code: 'ERR_ARGUMENT', message: /kind/ })
  // @ts-expect-error an unknown option
  await t.rejects(UnifiedBuffer.allocate(8, { kinds: 'host' }), { code: 'ERR_ARGUMENT', message: /kinds/ })
  await t.rejects(UnifiedBuffer.allocate(8, { device: -1 }), { code: 'ERR_ARGUMENT', message: /device/ })
})

t.test('what cannot fit is refused with how much is free', async t => {
  const before = UnifiedBuffer.stats()
  const refusal = {
    code: 'ERR_OUT_OF_MEMORY',
    message: /cannot allocate 1073741824 MiB .*: \d+ MiB are free/,
  }
  await t.rejects(UnifiedBuffer.allocate(2 ** 50, { kind: 'host' }), refusal)
  t.throws(() => UnifiedBuffer.allocateSync(2 ** 50), refusal)
  t.strictSame(UnifiedBuffer.stats(), before)
})

t.test('dispose frees at once, empties views and happens once', async t => {
  const before = UnifiedBuffer.stats()
  const buffer = UnifiedBuffer.allocateSync(1001)
  const view = buffer.view(Float32Array, 4, 9)
  t.equal(UnifiedBuffer.stats().blocks, before.blocks + 1)
  t.equal(UnifiedBuffer.stats().bytes.host, before.bytes.host + 1001)
  t.notOk(buffer.disposed)
  buffer.dispose()
  t.ok(buffer.disposed)
  t.strictSame({ ...UnifiedBuffer.stats(), peakBytes: 0 }, { ...before, peakBytes: 0 })
  t.equal(view.length, 0, 'a stale view is empty')
  t.equal(view[0], undefined)
  t.doesNotThrow(() => buffer.dispose())
  const other = UnifiedBuffer.allocateSync(8)
  for (const use of [
    () => buffer.view(Uint8Array),
    () => buffer.read(new Uint8Array(1)),
    () => buffer.write(new Uint8Array(1)),
    () => buffer.copyTo(other),
    () => other.copyTo(buffer),
    () => buffer.prefetch('gpu'),
    () => buffer.advise('readMostly'),
  ]) {
    refuses(t, use, 'ERR_DISPOSED', /is disposed/)
  }
  {
    using scoped = other
    t.equal(scoped.bytes, 8)
  }
  t.ok(other.disposed)
  t.equal(UnifiedBuffer.stats().blocks, before.blocks)
})

t.test('hints do nothing for host memory', async t => {
  using buffer = UnifiedBuffer.allocateSync(64)
  t.equal(buffer.prefetch('gpu'), false)
  t.equal(buffer.advise('preferredLocation', 'cpu'), false)
  // @ts-expect-error an unknown processor
  refuses(t, () => buffer.prefetch('tpu'), 'ERR_ARGUMENT', /one of cpu, gpu/)
  // @ts-expect-error an unknown hint
  refuses(t, () => buffer.advise('fast'), 'ERR_ARGUMENT', /readMostly/)
})

t.test('bytes that were transferred away outlive dispose', async t => {
  const before = UnifiedBuffer.stats().blocks
  const buffer = UnifiedBuffer.allocateSync(64)
  buffer.view(Uint8Array).fill(9)
  const original = buffer.view(Uint8Array).buffer as ArrayBuffer & { transfer?: () => ArrayBuffer }
  try {
    const clone = structuredClone(original, { transfer: [original] })
    t.equal(new Uint8Array(clone)[63], 9, 'Node 20 copies')
  } catch (error) {
    t.equal((error as Error).name, 'DataCloneError')
  }
  if (!original.transfer || original.byteLength === 0) {
    buffer.dispose()
    return
  }
  const moved = original.transfer()
  t.equal(buffer.view(Uint8Array)[0], 9, 'a new view is made')
  buffer.dispose()
  t.equal(UnifiedBuffer.stats().blocks, before + 1)
  t.equal(new Uint8Array(moved)[63], 9)
})

t.test('a runtime that refuses external memory', async t => {
  const addon = requireAddon()
  t.ok(addon.externalBuffers())
  addon.refuseExternalBuffers(true)
  resetWarnings()
  const warnings: NodeJS.ErrnoException[] = []
  const listener = (warning: Error): unknown => warnings.push(warning)
  process.on('warning', listener)
  t.teardown(() => {
    process.off('warning', listener)
    addon.refuseExternalBuffers(false)
  })
  using a = UnifiedBuffer.allocateSync(16)
  using b = UnifiedBuffer.allocateSync(16)
  t.notOk(a.zeroCopy)
  refuses(t, () => a.view(Uint8Array), 'ERR_NO_ZERO_COPY', /read\(\) and write\(\)/)
  a.write(Float32Array.of(1, 2, 3))
  a.copyTo(b)
  const out = new Float32Array(4)
  b.read(out)
  t.strictSame([...out], [1, 2, 3, 0])
  await new Promise(resolve => setImmediate(resolve))
  t.strictSame(
    warnings.map(warning => warning.code),
    ['SPARK_NO_ZERO_COPY'],
    'one warning',
  )
})

t.test('a buffer beyond the limit of a view is reached by offset', async t => {
  const bytes = 5 * 2 ** 30 + 3
  if (freemem() < bytes * 1.3) return t.pass('skipped: too little memory')
  using buffer = UnifiedBuffer.allocateSync(bytes)
  const tail = buffer.view(Float64Array, 5 * 2 ** 30 - 16)
  tail[1] = Math.PI
  t.equal(tail.length, 2)
  t.equal(buffer.view(Float64Array, 5 * 2 ** 30 - 8, 1)[0], Math.PI)
  const last = new Uint8Array(3)
  buffer.write(Uint8Array.of(1, 2, 3), bytes - 3)
  buffer.read(last, bytes - 3)
  t.strictSame([...last], [1, 2, 3])
  if (constants.MAX_LENGTH < bytes) {
    refuses(t, () => buffer.view(Uint8Array), 'ERR_RANGE', /limit of \d+; view a part/)
  } else {
    t.equal(buffer.view(Uint8Array).length, bytes)
  }
  buffer.dispose()
  t.equal(tail.length, 0)
})

t.test('the addon refuses what TypeScript would have caught', async t => {
  const addon = requireAddon()
  const { handle } = addon.allocateHost(10)
  refuses(t, () => addon.view(handle, 8, 3), 'ERR_RANGE', /3 bytes at offset 8/)
  refuses(t, () => addon.view(handle, 2 ** 53, 1), 'ERR_ARGUMENT', /non-negative integer/)
  refuses(t, () => addon.read(handle, 11, new Uint8Array(0)), 'ERR_RANGE', /offset 11/)
  refuses(t, () => addon.write(handle, 0, new Float32Array(1) as never), 'ERR_ARGUMENT', /Uint8Array/)
  refuses(t, () => addon.copy(handle, 0, handle, 5, 6), 'ERR_RANGE', /6 bytes at offset 5/)
  addon.dispose(handle)
  refuses(t, () => addon.view(handle, 0, 1), 'ERR_DISPOSED', /disposed/)
})

t.test('a failed external ArrayBuffer beyond the limit is not freed twice', async t => {
  if (freemem() < 7 * 2 ** 30 || constants.MAX_LENGTH > 2 ** 33) return t.pass('skipped: no such limit here')
  const script = `
    import { requireAddon } from '#lib/native.js'
    const addon = requireAddon()
    const { handle } = addon.allocateHost(2 ** 32 + 4096)
    let failed = false
    try { addon.view(handle, 0, 2 ** 32 + 4096) } catch { failed = true }
    await new Promise(resolve => setTimeout(resolve, 20))
    const alive = addon.memoryStats().blocks
    addon.dispose(handle)
    console.log(JSON.stringify({ failed, alive, after: addon.memoryStats().blocks }))`
  t.strictSame(await scriptResult(script), { failed: true, alive: 1, after: 0 })
})

t.test('a CPU job keeps the memory of its operands', async t => {
  const script = `
    import { UnifiedBuffer } from 'dgx-spark'
    import { requireAddon } from '#lib/native.js'
    const addon = requireAddon()
    if (!addon.supports('cpu', 'cast')) { console.log('"no kernel"'); process.exit() }
    const n = 1000003
    const jobs = Array.from({ length: 8 }, () => {
      const src = UnifiedBuffer.allocateSync(n * 4), dst = UnifiedBuffer.allocateSync(n * 2)
      const job = addon.runAsync('cast', { srcDtype: 'f32', dstDtype: 'f16', count: n, saturate: false,
        src: src.view(Float32Array), dst: dst.view(Uint16Array) })
      src.dispose(); dst.dispose()
      return job
    })
    const during = UnifiedBuffer.stats().blocks
    await Promise.all(jobs)
    console.log(JSON.stringify([during > 0, UnifiedBuffer.stats().blocks]))`
  const result = await scriptResult(script)
  if (result !== 'no kernel') t.strictSame(result, [true, 0])
})

t.test('codes are those of SparkError', async t => {
  try {
    UnifiedBuffer.allocateSync(2 ** 50)
  } catch (error) {
    t.ok(error instanceof SparkError)
  }
})
