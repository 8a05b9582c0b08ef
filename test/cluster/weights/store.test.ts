// The store of chunks: hashes, kills, damage, limits, full disks; manifests that lie.
import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import {
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import {
  chunksIn,
  type FileManifest,
  manifestId,
  manifestOf,
  parseManifest,
} from '#lib/cluster/weights/manifest.js'
import { WeightStore } from '#lib/cluster/weights/weight-store.js'

process.env.XDG_CACHE_HOME = t.testdir()

const root = path.resolve(import.meta.dirname, '../../..')
const hashOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')
const chunk = (n: number, bytes = 5000): Uint8Array => new Uint8Array(bytes).fill(n)

/** Files below a folder, without those of its lock. */
const filesIn = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile() && !entry.name.endsWith('.lock'))
    .map(({ name }) => name)
    .sort()

t.test('chunks are read as they were written, and after the store was opened anew', async t => {
  const folder = t.testdir()
  const chunks = [0, 1, 4095, 4096, 70_001].map((bytes, n) => chunk(n, bytes))
  {
    await using store = await WeightStore.open(folder)
    for (const bytes of chunks) await store.write(hashOf(bytes), bytes)
    await store.write(hashOf(chunks[4]!), chunks[4]!)
    t.equal(store.bytes, 0 + 1 + 4095 + 4096 + 70_001)
    await t.rejects(WeightStore.open(folder), { code: 'ERR_BUSY' })
  }
  await using store = await WeightStore.open(folder)
  for (const bytes of chunks) t.same(await store.read(hashOf(bytes)), Buffer.from(bytes))
  t.equal(await store.read('0'.repeat(64)), undefined)
})

t.test('wrong bytes, wrong hashes, damage on the disk', async t => {
  const folder = t.testdir()
  await using store = await WeightStore.open(folder)
  const [a, b] = [chunk(1), chunk(2)]
  await t.rejects(store.write(hashOf(a), b), { code: 'ERR_FORMAT', message: hashOf(a) })
  await t.rejects(store.write('../../x', a), { code: 'ERR_ARGUMENT' })
  await t.rejects(store.read('A'.repeat(64)), { code: 'ERR_ARGUMENT' })
  t.same(filesIn(folder), [])
  await store.write(hashOf(a), a)
  writeFileSync(path.join(folder, 'chunks', hashOf(a).slice(0, 2), hashOf(a)), b)
  t.equal(await store.read(hashOf(a)), undefined, 'damage is no chunk')
  t.notOk(store.has(hashOf(a)))
  t.same(filesIn(folder), [])
  await store.write(hashOf(a), a)
  t.same(await store.read(hashOf(a)), Buffer.from(a))
})

t.test('a chunk that cannot be read at the moment stays', async t => {
  const folder = t.testdir()
  await using store = await WeightStore.open(folder)
  const [a, whole] = [chunk(1), path.join(folder, 'whole')]
  await store.write(hashOf(a), a)
  const file = path.join(folder, 'chunks', hashOf(a).slice(0, 2), hashOf(a))
  writeFileSync(whole, chunk(2))
  const { chunks } = await store.addFile(whole)
  for (const [place, hash] of [
    [file, hashOf(a)],
    [whole, chunks[0]!],
  ] as const) {
    renameSync(place, `${place}.away`)
    symlinkSync(place, place)
    await t.rejects(store.read(hash), { code: 'ERR_IO' })
    t.ok(store.has(hash))
    renameSync(`${place}.away`, place)
    t.ok(await store.read(hash))
    rmSync(place)
    t.equal(await store.read(hash), undefined)
    t.notOk(store.has(hash))
  }
})

t.test('chunks that were not used for long are removed, unless they are held', async t => {
  const folder = t.testdir()
  const chunks = [0, 1, 2, 3, 4].map(n => chunk(n))
  const hashes = chunks.map(hashOf)
  {
    await using store = await WeightStore.open(folder)
    for (const [n, bytes] of chunks.entries()) await store.write(hashes[n]!, bytes)
    for (const hash of hashes) utimesSync(path.join(folder, 'chunks', hash.slice(0, 2), hash), 1, 1)
  }
  await using store = await WeightStore.open(folder)
  await store.read(hashes[0]!)
  await store.write(hashes[1]!, chunks[1]!)
  using _held = store.hold([hashes[2]!])
  await store.removeUnused(3_600_000)
  t.same(
    hashes.map(hash => store.has(hash)),
    [true, true, true, false, false],
  )
  t.equal(filesIn(folder).length, 3)
})

t.test('the least recently used chunks that nobody holds make way', async t => {
  const folder = t.testdir()
  const chunks = Array.from({ length: 5 }, (_, n) => chunk(n, 1000))
  const hashes = chunks.map(hashOf)
  {
    await using store = await WeightStore.open(folder, { maxBytes: 3000 })
    for (const n of [0, 1, 2]) await store.write(hashes[n]!, chunks[n]!)
    for (const [n, hash] of hashes.slice(0, 3).entries())
      utimesSync(path.join(folder, 'chunks', hash.slice(0, 2), hash), n + 1, n + 1)
  }
  await using store = await WeightStore.open(folder, { maxBytes: 3000 })
  await store.read(hashes[1]!)
  const held = store.hold([hashes[0]!])
  await store.write(hashes[3]!, chunks[3]!)
  t.same(
    hashes.map(hash => store.has(hash)),
    [true, true, false, true, false],
  )
  using _all = store.hold(hashes)
  await t.rejects(store.write(hashes[4]!, chunks[4]!), {
    code: 'ERR_IO',
    message: /may have 3000 bytes, 3000 are in use, and 1000 more are wanted/,
  })
  held[Symbol.dispose]()
  t.ok(store.has(hashes[0]!), 'still held by the other')
  t.equal(store.bytes, 3000)
})

t.test('a kill at any moment leaves whole chunks', async t => {
  const folder = t.testdir()
  const script = `
    import { writeSync } from 'node:fs'
    import { createHash, randomBytes } from 'node:crypto'
    const { WeightStore } = await import('#lib/cluster/weights/weight-store.js')
    const store = await WeightStore.open(${JSON.stringify(folder)})
    for (;;) await Promise.all([0, 1, 2].map(async () => {
      const bytes = randomBytes(100_000)
      const hash = createHash('sha256').update(bytes).digest('hex')
      await store.write(hash, bytes)
      writeSync(1, hash + '\\n')
    }))`
  const written: string[] = []
  for (const lines of [0, 9]) {
    const child = spawn(process.execPath, ['--input-type=module', '--eval', script], {
      cwd: root,
      env: { ...process.env, NODE_OPTIONS: '' },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let seen = 0
    for await (const line of createInterface({ input: child.stdout })) {
      written.push(line)
      if (seen++ === lines) child.kill('SIGKILL')
    }
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
    await using store = await WeightStore.open(folder)
    for (const hash of written) t.ok(await store.read(hash), 'what was acknowledged is there')
    const names = filesIn(folder)
    t.ok(
      names.every(name => /^[0-9a-f]{64}$/.test(name)),
      'no junk',
    )
    for (const name of names) t.ok(await store.read(name), 'what is there is whole')
  }
})

const isRoot = process.platform === 'linux' && process.getuid?.() === 0

t.test('a full disk is refused with numbers', { skip: isRoot ? false : 'mounting needs root' }, async t => {
  const disk = mkdtempSync(path.join(tmpdir(), 'dgx-spark-disk-'))
  t.teardown(() => rmdirSync(disk))
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'tmpfs', disk])
  if (mounted.status !== 0) return t.pass('mounting is not allowed here')
  t.teardown(() => void spawnSync('umount', ['-l', disk]))
  await using store = await WeightStore.open(path.join(disk, 'store'))
  const fits = chunk(1, 60_000)
  await store.write(hashOf(fits), fits)
  const large = chunk(2, 300_000)
  await t.rejects(store.write(hashOf(large), large), {
    code: 'ERR_IO',
    message: /a chunk needs 300000 bytes, and the disk has \d+ left: free some space/,
  })
  t.same(filesIn(disk), [hashOf(fits)])
  t.same(await store.read(hashOf(fits)), Buffer.from(fits))
})

t.test('manifests', async t => {
  const file = path.join(t.testdir(), 'model.safetensors')
  const content = Buffer.concat([0, 1, 2].map(n => chunk(n, n === 2 ? 100 : 4096)))
  writeFileSync(file, content)
  utimesSync(file, 1, 1)
  const manifest = await manifestOf(file, { chunkBytes: 4096 })
  const expected = [0, 1, 2].map(n => hashOf(content.subarray(n * 4096, (n + 1) * 4096)))
  t.same(manifest, { name: 'model.safetensors', bytes: 8292, chunkBytes: 4096, chunks: expected })
  t.same(parseManifest(JSON.parse(JSON.stringify(manifest))), manifest)
  t.not(manifestId(manifest), manifestId({ ...manifest, name: 'other' }))
  t.same(chunksIn(manifest, undefined), [0, 1, 2])
  const ranges = [
    { begin: 8191, end: 8193 },
    { begin: 4096, end: 4096 },
    { begin: 8292, end: 8292 },
  ]
  t.same(chunksIn(manifest, ranges), [1, 2])
  t.throws(() => chunksIn(manifest, [{ begin: 0, end: 8293 }]), { code: 'ERR_ARGUMENT' })
  t.throws(() => chunksIn(manifest, [{ begin: 2, end: 1 }]), { code: 'ERR_ARGUMENT' })
  writeFileSync(file, '')
  t.same((await manifestOf(file)).chunks, [])
  await t.rejects(manifestOf(path.join(file, 'x')), { code: 'ERR_IO' })
  await t.rejects(manifestOf(file, { chunkBytes: 1000 }), { code: 'ERR_ARGUMENT' })
})

t.test('a manifest is remembered while the file stays the same', async t => {
  const file = path.join(t.testdir(), 'model.gguf')
  writeFileSync(file, chunk(1))
  const cache = path.join(process.env.XDG_CACHE_HOME!, 'dgx-spark', 'chunks')
  const wait = new Promise(resolve => setTimeout(resolve, 2100)) // files younger than the clock's tick are not remembered
  await wait
  const first = await manifestOf(file)
  const [note] = readdirSync(cache).map(name => path.join(cache, name))
  t.ok(note)
  writeFileSync(note!, readFileSync(note!, 'utf8').replace(first.chunks[0]!, '0'.repeat(64)))
  t.same((await manifestOf(file)).chunks, ['0'.repeat(64)], 'from the cache')
  writeFileSync(note!, '{"bytes": -1}')
  t.same(await manifestOf(file), first, 'a damaged note is not used')
  writeFileSync(file, chunk(2))
  t.same((await manifestOf(file)).chunks, [hashOf(chunk(2))])
})

t.test('manifests that no node sends are refused', async t => {
  const good: FileManifest = {
    name: 'a/b.onnx',
    bytes: 5000,
    chunkBytes: 4096,
    chunks: ['0', '1'].map(c => c.repeat(64)),
  }
  t.same(parseManifest(good), good)
  const names = [
    '',
    '/etc/passwd',
    '../x',
    'a/../b',
    '.hidden',
    'a//b',
    'a\\b',
    'a\0b',
    'a/',
    'C:x',
    'x'.repeat(300),
    7,
  ]
  const changes = [
    ...names.map(name => ({ name })),
    ...[-1, 1.5, Number.MAX_SAFE_INTEGER, '5', 4096, 8193].map(bytes => ({ bytes })),
    ...[0, 1, 4097, 2 ** 40, null].map(chunkBytes => ({ chunkBytes })),
    ...[[], ['0'.repeat(64)], ['0'.repeat(64), 'x'], {}, null].map(chunks => ({ chunks })),
  ]
  for (const change of changes)
    t.throws(() => parseManifest({ ...good, ...change }), { code: 'ERR_FORMAT' }, JSON.stringify(change))
  for (const value of [null, 1, 'x', []]) t.throws(() => parseManifest(value), { code: 'ERR_FORMAT' })
})

t.test('a file of the user is served without a copy, and no longer when it changes', async t => {
  const folder = t.testdir()
  const file = path.join(folder, 'model.bin')
  writeFileSync(file, Buffer.concat([chunk(1, 4096), chunk(2, 10)]))
  {
    await using store = await WeightStore.open(path.join(folder, 'store'))
    const { chunks } = await store.addFile(file, { chunkBytes: 4096 })
    t.same(chunks, [hashOf(chunk(1, 4096)), hashOf(chunk(2, 10))])
    t.same(await store.read(chunks[1]!), Buffer.from(chunk(2, 10)))
    t.equal(store.bytes, 0)
  }
  await using store = await WeightStore.open(path.join(folder, 'store'))
  t.same(await store.read(hashOf(chunk(1, 4096))), Buffer.from(chunk(1, 4096)))
  writeFileSync(file, Buffer.concat([chunk(1, 4096), chunk(3, 10)]))
  t.equal(await store.read(hashOf(chunk(2, 10))), undefined)
  t.same(
    await store.read(hashOf(chunk(1, 4096))),
    Buffer.from(chunk(1, 4096)),
    'what is the same is still there',
  )
  rmSync(file)
  t.equal(await store.read(hashOf(chunk(1, 4096))), undefined)
})
