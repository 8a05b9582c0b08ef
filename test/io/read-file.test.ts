// Files that are read whole: what is no ordinary file is refused by name, wherever a file is read, and nothing waits.
import { execFileSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import path from 'node:path'
import { Adapter, readSafetensors } from 'dgx-spark'
import t from 'tap'
import { openData } from '#lib/data/open.js'
import { Constant } from '#lib/graph/constant.js'
import { readCheckpoint } from '#lib/io/checkpoints/checkpoint.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { writeOnnx } from '#lib/io/onnx/save.js'
import { readBytes, readText } from '#lib/io/read-file.js'
import { readEvents } from '#lib/training/log.js'
import { smallModel } from '../fixtures/models/trainable.js'

t.test('bytes and text', async t => {
  const dir = t.testdir({ file: 'Größe\n', empty: '' })
  t.equal(await readText(path.join(dir, 'file')), 'Größe\n')
  t.equal((await readBytes(path.join(dir, 'file'))).byteLength, 8)
  t.equal((await readBytes(path.join(dir, 'empty'))).byteLength, 0)
  await t.rejects(readBytes(dir), { code: 'ERR_IO', message: /could not read .*: it is a folder/ })
  await t.rejects(readBytes(path.join(dir, 'none')), { code: 'ERR_IO', message: /no such file/ })
})

t.test('pipes and devices', { skip: process.platform === 'win32' }, async t => {
  const dir = t.testdir({ adapter: {}, data: {}, model: {} })
  const pipe = (name: string): string => {
    execFileSync('mkfifo', [path.join(dir, name)])
    return path.join(dir, name)
  }
  const model = path.join(dir, 'model/model.onnx')
  await writeOnnx(smallModel(), model)
  const read: Record<string, () => Promise<unknown>> = {
    '/dev/zero': () => readBytes('/dev/zero'),
    model: () => readOnnx(pipe('model.onnx')),
    tensors: () => readSafetensors(pipe('a.safetensors')),
    checkpoint: () => readCheckpoint(path.dirname(pipe('model.safetensors'))),
    adapter: () => Adapter.load(smallModel(), path.dirname(pipe('adapter/adapter_config.json'))),
    arrays: () => openData(path.dirname(pipe('data/x.npy'))),
    log: () => readEvents(pipe('log.jsonl')),
  }
  for (const [name, from] of Object.entries(read)) {
    await t.rejects(from(), { code: 'ERR_IO', message: /could not read .*: it is no ordinary file/ }, name)
  }
})

t.test('weights beside a model', { skip: process.platform === 'win32' }, async t => {
  const dir = t.testdir()
  const file = path.join(dir, 'model.onnx')
  const small = smallModel()
  const large = Constant.from('f32', [1001, 7], new Float32Array(1001 * 7))
  await writeOnnx({ ...small, initializers: new Map([...small.initializers, ['fc0.weight', large]]) }, file, {
    externalData: true,
  })
  t.ok(await readOnnx(file))
  rmSync(`${file}.data`)
  execFileSync('mkfifo', [`${file}.data`])
  await t.rejects(readOnnx(file), { code: 'ERR_FORMAT', message: /'model.onnx.data' is not a file/ })
})
