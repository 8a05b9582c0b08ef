// Models of the Hugging Face hub: its cache, what of a repository is pulled, servers and disks that fail.
import {
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { pullModel } from 'dgx-spark'
import t from 'tap'
import { commit, type Files, gitHash, serveHub, setVariables, sha256 } from '../fixtures/hub/hub-server.js'
import { sendFile } from '../fixtures/hub/server.js'

const bytes = (length: number, seed: number): Buffer =>
  Buffer.from(Array.from({ length }, (_, i) => (i * 7 + seed) % 251))

const folder: Files = {
  '.gitattributes': 'x',
  'README.md': '# x',
  'config.json': '{}',
  'tokenizer.json': '{"a":1}',
  'tokenizer_config.json': '{"b":1}',
  'model-00001-of-00002.safetensors': bytes(50_000, 1),
  'model-00002-of-00002.safetensors': bytes(40_001, 2),
  'model.safetensors.index.json': JSON.stringify({
    weight_map: { a: 'model-00001-of-00002.safetensors', b: 'model-00002-of-00002.safetensors' },
  }),
  'consolidated.safetensors': bytes(90_000, 3),
  'pytorch_model.bin': bytes(90_000, 4),
  'original/config.json': '{"c":1}',
}

const pulled = Object.keys(folder)
  .filter(name => /^(config|token|model)/.test(name))
  .sort()

t.test('a folder of safetensors in the shared cache', async t => {
  const { hub, cdn, home } = await serveHub(t, { 'org/model': folder })
  const told: number[] = []
  const result = await pullModel('hf:org/model', {
    onPlan: ({ files }) => t.ok(files.every(({ isThere }) => !isThere)),
    onProgress: ({ bytes, total }) => {
      t.ok(bytes <= total!)
      told.push(bytes)
    },
  })
  const repository = path.join(home, 'hub', 'models--org--model')
  const snapshot = path.join(repository, 'snapshots', commit)
  t.match(result, { path: snapshot, format: 'safetensors', commit, isOffline: false })
  t.strictSame(result.files.map(({ name }) => name).sort(), pulled)
  const size = result.files.reduce((sum, file) => sum + file.bytes, 0)
  t.equal(told.at(-1), size)
  t.equal(result.downloadedBytes, size)
  for (const { name, path: file, bytes } of result.files) {
    const content = Buffer.from(folder[name]!)
    t.ok(readFileSync(file).equals(content), name)
    t.equal(bytes, content.length)
    const hash = name.endsWith('.safetensors') ? sha256(content) : gitHash(content)
    t.equal(readlinkSync(file), path.join('..', '..', 'blobs', hash), 'as huggingface_hub links it')
  }
  t.equal(readFileSync(path.join(repository, 'refs', 'main'), 'utf8'), commit)
  t.strictSame(readdirSync(path.join(repository, 'blobs')).length, pulled.length, 'nothing else is left')

  const before = cdn.seen.length
  t.equal((await pullModel('hf:org/model')).downloadedBytes, 0)
  t.equal(cdn.seen.length, before, 'what is there is not requested')
  const requests = hub.seen.length
  t.strictSame(await pullModel('hf:org/model', { offline: true }).then(each => each.path), snapshot)
  setVariables(t, { HF_HUB_OFFLINE: '1' })
  t.match(await pullModel('hf:org/model'), { path: snapshot, isOffline: true })
  t.equal(hub.seen.length, requests, 'offline makes no request')
  await t.rejects(pullModel('hf:org/other'), {
    code: 'ERR_IO',
    message: /is not in the cache.*pull it first/,
  })
  await t.rejects(pullModel('hf:org/model@dev'), { code: 'ERR_IO' })
})

t.test('what another tool has fetched, and a cache of another place', async t => {
  const { hub, home } = await serveHub(t, { 'org/model': folder })
  const cache = path.join(home, 'elsewhere')
  setVariables(t, { HF_HUB_CACHE: cache })
  const { path: first } = await pullModel('hf:org/model@refs/pr/1')
  t.equal(first, path.join(cache, 'models--org--model', 'snapshots', commit))
  t.equal(readFileSync(path.join(cache, 'models--org--model', 'refs', 'refs', 'pr', '1'), 'utf8'), commit)
  t.equal(existsSync(path.join(cache, 'models--org--model', 'refs', 'main')), false)

  const config = path.join(first, 'config.json')
  const blob = path.join(first, readlinkSync(path.join(first, 'tokenizer.json')))
  t.ok(lstatSync(config).isSymbolicLink())
  truncateSync(blob, 3)
  const lock = path.join(cache, '.locks/models--org--model', `${path.basename(blob)}.lock`)
  writeFileSync(lock, '') // huggingface_hub leaves those of its downloads
  const before = hub.seen.length
  await pullModel(`hf:org/model@${commit}`)
  const requests = hub.seen.slice(before).filter(({ url }) => url.includes('/resolve/'))
  t.strictSame(
    requests.map(({ url }) => path.basename(url)),
    ['tokenizer.json'],
    'a file that was cut',
  )
  t.equal(readFileSync(path.join(first, 'tokenizer.json'), 'utf8'), '{"a":1}')
  t.ok(existsSync(lock), 'the lock of another tool is neither waited for nor removed')
})

t.test('the hub is gone: the copy in the cache', async t => {
  const { hub } = await serveHub(t, { 'org/model': folder })
  const { path: first } = await pullModel('hf:org/model')
  hub.close()
  t.match(await pullModel('hf:org/model'), { path: first, isOffline: true })
  await t.rejects(pullModel('hf:org/other'), { code: 'ERR_IO', message: /could not download/ })
})

for (const ranges of [true, false])
  t.test(`a connection that is cut, ${ranges ? 'with' : 'without'} ranges`, async t => {
    const name = 'model-00001-of-00002.safetensors'
    const content = folder[name] as Buffer
    const { cdn } = await serveHub(
      t,
      { 'org/model': folder },
      {
        cdnAnswer(request, response, attempt) {
          const isName = request.url?.includes(sha256(content)) ?? false
          if (isName) sendFile(request, response, content, attempt === 0 ? { cut: 30_000 } : { ranges })
          return isName
        },
      },
    )
    const { files } = await pullModel('hf:org/model')
    t.ok(readFileSync(files.find(file => file.name === name)!.path).equals(content))
    t.ok(cdn.seen.some(({ range }) => range === 'bytes=30000-'))
  })

t.test('tokens, and refusals', async t => {
  const { hub, cdn, home } = await serveHub(
    t,
    { 'org/model': folder },
    {
      answer(request, response) {
        const isOpen = request.headers.authorization === 'Bearer hf_good'
        if (!isOpen)
          response.writeHead(401, { 'x-error-message': 'Access to org/model is restricted.' }).end()
        return !isOpen
      },
    },
  )
  await t.rejects(pullModel('hf:org/model'), {
    code: 'ERR_IO',
    message: /401 Unauthorized: Access to org\/model is restricted\.: set HF_TOKEN=<token>/,
  })
  setVariables(t, { HF_TOKEN: 'hf_bad' })
  await t.rejects(pullModel('hf:org/model'), { code: 'ERR_IO', message: /the token is not accepted/ })
  t.equal((await pullModel('hf:org/model:config.json', { token: 'hf_good' })).files.length, 1)
  setVariables(t, { HF_TOKEN: undefined })
  writeFileSync(path.join(home, 'token'), 'hf_good\n')
  await pullModel('hf:org/model')
  t.ok(hub.seen.slice(-4).every(({ authorization }) => authorization === 'Bearer hf_good'))
  t.ok(cdn.seen.length > 0 && cdn.seen.every(({ authorization }) => authorization === undefined))
  setVariables(t, { HF_TOKEN: 'hf_\u20ac\n' })
  await t.rejects(pullModel('hf:org/model'), {
    code: 'ERR_ARGUMENT',
    message: /^(?!.*hf_).*the token of 127/,
  })
})
