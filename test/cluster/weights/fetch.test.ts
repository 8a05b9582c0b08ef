// Files from several sources: the fastest gives most, liars are dropped and named, what was verified is not sent again.
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { chunkFrames, serveChunks } from '#lib/cluster/weights/chunk-link.js'
import { fetchBlob } from '#lib/cluster/weights/fetch-chunks.js'
import { fetchFile } from '#lib/cluster/weights/fetch-file.js'
import { fetchTensors } from '#lib/cluster/weights/fetch-tensors.js'
import { type FileManifest, manifestOf } from '#lib/cluster/weights/manifest.js'
import { type ChunkSource, fileSource, urlSource } from '#lib/cluster/weights/sources.js'
import { WeightStore } from '#lib/cluster/weights/weight-store.js'
import { randomGenerator } from '#lib/core/random.js'
import { readGguf, writeGguf } from '#lib/io/gguf/gguf.js'
import { readSafetensors, writeSafetensors } from '#lib/io/safetensors.js'
import { lab } from '../../fixtures/cluster/lab.js'
import { linkPair } from '../../fixtures/cluster/link-pair.js'

process.env.XDG_CACHE_HOME = t.testdir()

const root = path.resolve(import.meta.dirname, '../../..')
const chunkBytes = 8192
const hashOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

/** A file of random bytes, and its manifest. */
async function fileOf(
  t: Test,
  bytes: number,
): Promise<{ file: string; content: Buffer; manifest: FileManifest }> {
  const random = randomGenerator(bytes)
  const content = Buffer.from(Uint8Array.from({ length: bytes }, () => random() * 256))
  const file = path.join(t.testdir(), 'model.bin')
  writeFileSync(file, content)
  return { file, content, manifest: await manifestOf(file, { chunkBytes }) }
}

const storeOf = async (t: Test, options = {}): Promise<WeightStore> => {
  const store = await WeightStore.open(path.join(t.testdirName, `store-${Math.random()}`), options)
  t.teardown(() => store.close())
  return store
}

/** A source in memory; `answer` changes what it sends. */
function memorySource(
  name: string,
  content: Buffer,
  manifest: FileManifest,
  answer: (bytes: Buffer, index: number, signal: AbortSignal) => Promise<Uint8Array | undefined> = async b =>
    b,
): ChunkSource & { asked: number[] } {
  const asked: number[] = []
  return {
    name,
    asked,
    have: async hashes => hashes.map(hash => manifest.chunks.includes(hash)),
    get: (hash, bytes, signal) => {
      const index = manifest.chunks.indexOf(hash)
      asked.push(index)
      return answer(content.subarray(index * chunkBytes, index * chunkBytes + bytes), index, signal)
    },
  }
}

t.test('over links, from two nodes to a third, and on from there', async t => {
  const nodes = await lab(t, 4)
  const { file, content, manifest } = await fileOf(t, 300_003)
  const stores = await Promise.all(nodes.map(() => storeOf(t)))
  for (const store of stores.slice(0, 2)) await store.addFile(file, { chunkBytes })
  const sourceTo = async (from: number, to: number): Promise<ChunkSource> => {
    const [here, there] = await linkPair(t, nodes[to]!, nodes[from]!)
    serveChunks(there, stores[from])
    return serveChunks(here, stores[to])
  }
  const sources = [await sourceTo(0, 2), await sourceTo(1, 2)]
  const seen: number[] = []
  using fetched = await fetchFile(manifest, sources, stores[2]!, {
    device: 'cpu-0',
    onProgress: ({ file: name, device, bytes, total, rate }) => {
      if (name !== 'model.bin' || device !== 'cpu-0' || total !== 300_003 || !(rate >= 0)) t.fail('progress')
      seen.push(bytes)
    },
  })
  t.ok(readFileSync(fetched.path).equals(content))
  t.equal(fetched.fetched, 300_003)
  t.same(
    seen,
    [...seen].sort((a, b) => a - b),
    'progress rises',
  )
  t.equal(seen.at(-1), 300_003)
  t.ok(
    fetched.sources.every(({ bytes, dropped }) => bytes > 0 && dropped === undefined),
    'both gave',
  )
  t.equal(stores[2]!.bytes, 300_003, 'the chunks lie in the file only')
  using next = await fetchFile(manifest, [await sourceTo(2, 3)], stores[3]!)
  t.ok(readFileSync(next.path).equals(content), 'who has it gives it')
  using again = await fetchFile(manifest, [], stores[3]!)
  t.equal(again.fetched, 0, 'what is there is not sent')
  const blob = Buffer.from('a result')
  await stores[2]!.write(hashOf(blob), blob)
  const reference = { hash: hashOf(blob), bytes: blob.length }
  t.same(await fetchBlob(reference, [await sourceTo(2, 3)], stores[3]!), blob)
  const [here, there] = await linkPair(t, nodes[3]!, nodes[2]!)
  serveChunks(there, stores[2])
  t.same(await serveChunks(here, undefined).get(hashOf(blob), 7), undefined, 'a chunk of another length')
})

t.test('the fastest gives most; liars, the vanished and the silent are dropped and named', async t => {
  const { content, manifest } = await fileOf(t, 60 * chunkBytes - 5)
  const store = await storeOf(t)
  const liar = memorySource('liar', content, manifest, async bytes => Buffer.from(bytes).fill(7))
  const short = memorySource('short', content, manifest, async bytes => bytes.subarray(1))
  const gone = memorySource('gone', content, manifest, async (bytes, index) => {
    if (index > 4) throw new Error('connection lost')
    return bytes
  })
  const silent = memorySource('silent', content, manifest, () => new Promise(() => {}))
  const mute: ChunkSource = { ...silent, name: 'mute', have: () => new Promise(() => {}) }
  const slow = memorySource('slow', content, manifest, bytes => sleep(60, bytes))
  const fast = memorySource('fast', content, manifest, bytes => sleep(2, bytes))
  const sources = [liar, short, gone, silent, mute, slow, fast]
  using fetched = await fetchFile(manifest, sources, store, { stallMs: 2000 })
  t.ok(readFileSync(fetched.path).equals(content))
  const reports = new Map(fetched.sources.map(report => [report.name, report]))
  t.match(reports.get('liar')?.dropped, /it sent other bytes as chunk \d+ of model.bin/)
  t.match(reports.get('short')?.dropped, /other bytes/)
  t.match(reports.get('gone')?.dropped, /connection lost/)
  t.equal(reports.get('liar')?.bytes, 0)
  t.equal(reports.get('slow')?.dropped, undefined)
  t.ok(reports.get('fast')!.bytes > reports.get('slow')!.bytes, 'the fastest gave most')
})

t.test('a source that stalls is dropped when nobody else has its chunks', async t => {
  const { content, manifest } = await fileOf(t, 3 * chunkBytes)
  const silent = memorySource('silent', content, manifest, () => new Promise(() => {}))
  await t.rejects(fetchFile(manifest, [silent], await storeOf(t), { stallMs: 100 }), {
    code: 'ERR_IO',
    message:
      /3 chunks of model.bin are missing, and nobody has chunk \d \(silent: it sent no chunk for 100 ms\)/,
  })
  await t.rejects(fetchFile(manifest, [], await storeOf(t)), { message: /there is no source/ })
})

t.test('a hub and a file of this machine are asked last', async t => {
  const { file, content, manifest } = await fileOf(t, 20 * chunkBytes)
  const requested: string[] = []
  const server = createServer((request, response) => {
    const [, begin, end] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? []
    requested.push(request.headers.range ?? '')
    response.writeHead(206).end(content.subarray(Number(begin), Number(end) + 1))
  }).listen(0, '127.0.0.1')
  t.teardown(() => server.close())
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/model.bin`
  const peer = memorySource('peer', content, manifest)
  const partial: ChunkSource = {
    ...peer,
    have: async hashes => hashes.map(hash => manifest.chunks.indexOf(hash) !== 13),
  }
  using fetched = await fetchFile(manifest, [urlSource(url, manifest), partial], await storeOf(t))
  t.ok(readFileSync(fetched.path).equals(content))
  t.same(requested, [`bytes=${13 * chunkBytes}-${14 * chunkBytes - 1}`])
  using local = await fetchFile(manifest, [await fileSource(file, manifest)], await storeOf(t))
  t.ok(readFileSync(local.path).equals(content))
  await t.rejects(fileSource(file, { ...manifest, bytes: 1, chunks: ['0'.repeat(64)] }), {
    code: 'ERR_FORMAT',
  })
})

t.test('ranges: only their chunks come, the rest is a hole, and more may follow', async t => {
  const { content, manifest } = await fileOf(t, 2_000_000)
  const store = await storeOf(t)
  const source = memorySource('peer', content, manifest)
  const range = { begin: 10 * chunkBytes + 3, end: 12 * chunkBytes + 1 }
  using first = await fetchFile(manifest, [source], store, { ranges: [range] })
  t.same(source.asked.sort(), [10, 11, 12])
  t.equal(first.bytes, 3 * chunkBytes)
  const bytes = readFileSync(first.path)
  t.equal(bytes.length, content.length)
  t.ok(bytes.subarray(range.begin, range.end).equals(content.subarray(range.begin, range.end)))
  t.ok(statSync(first.path).blocks * 512 < 200_000, 'the file is sparse')
  source.asked.length = 0
  using more = await fetchFile(manifest, [source], store, { ranges: [range, { begin: 0, end: 1 }] })
  t.same(source.asked, [0], 'a node keeps what it has')
  t.equal(more.bytes, 4 * chunkBytes)
  await t.rejects(fetchFile(manifest, [source], store, { ranges: [{ begin: 0, end: 2_000_001 }] }), {
    code: 'ERR_ARGUMENT',
  })
})

t.test('files of one model lie beside each other; what a kill left is removed', async t => {
  const folder = path.join(t.testdir(), 'store')
  const names = ['model.onnx', 'data/model.bin']
  const contents = names.map((_, n) => Buffer.alloc(10_000, n + 1))
  const manifests = await Promise.all(
    names.map(async (name, n) => {
      const file = path.join(t.testdirName, `source-${n}`)
      writeFileSync(file, contents[n]!)
      return manifestOf(file, { name, chunkBytes })
    }),
  )
  const store = await WeightStore.open(folder)
  for (const [n, manifest] of manifests.entries()) {
    const source = memorySource('peer', contents[n]!, manifest)
    using alone = await fetchFile(manifest, [source], store)
    using beside = await fetchFile(manifest, [], store, { group: 'model-1' })
    t.equal(beside.path, path.join(store.folder, 'files/model-1', names[n]!))
    t.notOk(existsSync(alone.path), 'it has moved')
    t.ok(readFileSync(beside.path).equals(contents[n]!))
  }
  t.equal(store.bytes, 20_000)
  await t.rejects(fetchFile(manifests[0]!, [], store, { group: '../x' }), { code: 'ERR_ARGUMENT' })
  await store.close()
  const junk = path.join(folder, 'files/model-1/junk.bin')
  writeFileSync(junk, 'junk')
  await using again = await WeightStore.open(folder)
  t.notOk(existsSync(junk))
  using kept = await fetchFile(manifests[1]!, [], again, { group: 'model-1' })
  t.ok(readFileSync(kept.path).equals(contents[1]!))
})

t.test('tensors of a safetensors and of a GGUF file, which loaders open as usual', async t => {
  const folder = t.testdir()
  const names = Array.from({ length: 30 }, (_, n) => `layers.${n}.weight`)
  const data = (n: number): Float32Array => new Float32Array(4096).fill(n + 1)
  const safetensors = path.join(folder, 'model.safetensors')
  const gguf = path.join(folder, 'model.gguf')
  await writeSafetensors(
    safetensors,
    names.map((name, n) => [name, { dtype: 'F32', shape: [4096], data: data(n) }] as const),
  )
  await writeGguf(gguf, {
    tensors: names.map((name, n) => ({ name, format: 'F32' as const, shape: [4096], values: () => data(n) })),
  })
  const wanted = (name: string): boolean => ['layers.10.weight', 'layers.11.weight'].includes(name)
  for (const file of [safetensors, gguf]) {
    const manifest = await manifestOf(file, { chunkBytes: 4096 })
    using fetched = await fetchTensors(manifest, [await fileSource(file, manifest)], await storeOf(t), wanted)
    t.ok(fetched.bytes < 60_000, `${fetched.bytes} of ${manifest.bytes} bytes`)
    const read = async (name: string): Promise<ArrayLike<number>> =>
      file === gguf
        ? await (await readGguf(fetched.path)).tensors.get(name)!.values()
        : ((await readSafetensors(fetched.path)).tensors.get(name)!.data as Float32Array)
    t.same(await read('layers.10.weight'), data(10))
    t.same(await read('layers.11.weight'), data(11))
    t.equal((await read('layers.20.weight'))[2000], 0)
  }
  const other = await fileOf(t, 5000)
  const source = await fileSource(other.file, other.manifest)
  await t.rejects(fetchTensors(other.manifest, [source], await storeOf(t), wanted), {
    code: 'ERR_UNSUPPORTED',
  })
})

t.test('after a kill nothing that was verified is sent again', async t => {
  const { file, content, manifest } = await fileOf(t, 60 * chunkBytes)
  const folder = path.join(t.testdirName, 'killed')
  const script = `
    import { writeSync } from 'node:fs'
    const { WeightStore } = await import('#lib/cluster/weights/weight-store.js')
    const { fileSource } = await import('#lib/cluster/weights/sources.js')
    const { fetchFile } = await import('#lib/cluster/weights/fetch-file.js')
    const manifest = ${JSON.stringify(manifest)}
    const source = await fileSource(${JSON.stringify(file)}, manifest)
    const store = await WeightStore.open(${JSON.stringify(folder)})
    const onProgress = ({ bytes }) => writeSync(1, bytes + '\\n')
    await fetchFile(manifest, [source], store, { onProgress })`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script], {
    cwd: root,
    env: { ...process.env, NODE_OPTIONS: '' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let verified = 0
  for await (const line of createInterface({ input: child.stdout })) {
    verified = Number(line)
    if (verified > 20 * chunkBytes) child.kill('SIGKILL')
  }
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  await using store = await WeightStore.open(folder)
  const source = memorySource('peer', content, manifest)
  using fetched = await fetchFile(manifest, [source], store)
  t.ok(verified > 0 && fetched.fetched <= content.length - verified, `${verified} bytes were there`)
  t.equal(source.asked.length, new Set(source.asked).size)
  t.ok(readFileSync(fetched.path).equals(content))
})

t.test('a signal ends it, and what came stays', async t => {
  const { content, manifest } = await fileOf(t, 30 * chunkBytes)
  const store = await storeOf(t)
  const stop = new AbortController()
  const source = memorySource('peer', content, manifest, async (bytes, index) => {
    if (index === 10) stop.abort(new Error('enough'))
    return bytes
  })
  await t.rejects(fetchFile(manifest, [source], store, { signal: stop.signal }), { message: 'enough' })
  source.asked.length = 0
  using fetched = await fetchFile(manifest, [memorySource('peer', content, manifest)], store)
  t.ok(fetched.fetched < content.length)
  await t.rejects(fetchFile(manifest, [], store, { signal: AbortSignal.abort(new Error('no')) }), {
    message: 'no',
  })
})

t.test('damage on the disk is fetched anew', async t => {
  const { content, manifest } = await fileOf(t, 5 * chunkBytes)
  const store = await storeOf(t)
  const source = memorySource('peer', content, manifest)
  const hash = manifest.chunks[2]!
  await store.write(hash, content.subarray(2 * chunkBytes, 3 * chunkBytes))
  writeFileSync(path.join(store.folder, 'chunks', hash.slice(0, 2), hash), 'damage')
  using fetched = await fetchFile(manifest, [source], store)
  t.ok(readFileSync(fetched.path).equals(content))
})

t.test('a full store ends the transfer with numbers', async t => {
  const { content, manifest } = await fileOf(t, 5 * chunkBytes)
  const store = await storeOf(t, { maxBytes: 3 * chunkBytes })
  await t.rejects(fetchFile(manifest, [memorySource('peer', content, manifest)], store), {
    code: 'ERR_IO',
    message: new RegExp(`may have ${3 * chunkBytes} bytes`),
  })
})

t.test('frames that no node sends end the link', async t => {
  const nodes = await lab(t, 2)
  const store = await storeOf(t)
  const { get, ask, piece, have } = chunkFrames
  const frames: [string, number, Buffer][] = [
    ['another type', 1, Buffer.alloc(0)],
    ['half a hash', ask, Buffer.alloc(31)],
    ['a chunk without a length', get, Buffer.alloc(32)],
    ['a chunk of 4 GiB', get, Buffer.alloc(36, 0xff)],
  ]
  for (const [name, type, payload] of frames) {
    const [here, there] = await linkPair(t, nodes[0]!, nodes[1]!)
    const served = serveChunks(there, store)
    await here.send({ type, id: 1, payload })
    await served.closed
    t.equal((await there.closed).error?.message.includes('node'), true, name)
    await t.rejects(served.get('0'.repeat(64), 5), { code: 'ERR_FORMAT' })
  }
  for (const [name, type, length] of [
    ['too many bytes', piece, 11],
    ['no bytes', piece, 0],
    ['a list for a chunk', have, 5],
  ] as const) {
    const [here, there] = await linkPair(t, nodes[0]!, nodes[1]!)
    const asking = t.rejects(serveChunks(there, store).get('0'.repeat(64), 10), { code: 'ERR_FORMAT' }, name)
    const { value: question } = await here[Symbol.asyncIterator]().next()
    await here.send({ type: piece, id: 999, payload: Buffer.alloc(3) })
    await here.send({ type, id: question!.id, payload: Buffer.alloc(length) })
    await asking
  }
})
