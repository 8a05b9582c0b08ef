// Models behind plain addresses.
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { pullModel } from 'dgx-spark'
import t from 'tap'
import { setVariables } from '../fixtures/hub/hub-server.js'
import { sendFile, serve } from '../fixtures/hub/server.js'

const bytes = Buffer.from(`GGUF${'x'.repeat(1001)}`)

t.test('files of addresses, once, in a folder for each', async t => {
  const cache = t.testdir({})
  setVariables(t, { XDG_CACHE_HOME: cache })
  const { base, seen, close } = await serve((request, response) => sendFile(request, response, bytes))
  t.teardown(close)
  const first = await pullModel(`${base}/a/model.gguf?x=1`)
  t.match(first, { format: 'gguf', downloadedBytes: bytes.length, isOffline: false })
  t.equal(path.basename(first.path), 'model.gguf')
  t.ok(first.path.startsWith(path.join(cache, 'dgx-spark', 'models')))
  t.ok(readFileSync(first.path).equals(bytes))
  t.match(await pullModel(`${base}/a/model.gguf?x=1#top`), { path: first.path, isOffline: true })
  t.equal(seen.length, 1)
  t.not((await pullModel(`${base}/b/model.gguf?x=1`)).path, first.path)
  await t.rejects(pullModel(`${base}/c/model.gguf`, { offline: true }), {
    code: 'ERR_IO',
    message: /offline/,
  })

  const hostile = await pullModel(`${base}/x/..%2f..%2fevil`)
  t.equal(path.basename(hostile.path), 'model', 'a name that leads elsewhere')
  t.notOk(existsSync(path.join(cache, 'evil')))
  const split = await pullModel(`${base}/s/m-00002-of-00003.gguf`)
  t.strictSame(
    split.files.map(({ name }) => name),
    [1, 2, 3].map(part => `m-0000${part}-of-00003.gguf`),
  )
  t.equal(split.path, split.files[0]!.path)
})
