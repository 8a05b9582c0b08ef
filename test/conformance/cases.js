// cases.js: ONNX backend test cases: a model and the tensors that go in and come out, in a folder each.
import { readdirSync, readFileSync, statSync } from 'node:fs'
import path from 'node:path'
import { readTar } from './tar.js'

/**
 * @typedef {{ name: string, model: Uint8Array, sets: { inputs: Uint8Array[], outputs: Uint8Array[] }[] }} Case
 */

/**
 * @param {string} place - a folder of cases, or a .tar.gz of one
 * @returns {Case[]} by name
 */
export function readCases(place) {
  const files = statSync(place).isDirectory() ? readFolder(place) : readTar(place)
  const models = [...files.keys()].filter(name => path.posix.basename(name) === 'model.onnx').sort()
  return models.map(model => {
    const folder = path.posix.dirname(model)
    const content = (/** @type {string} */ name) => /** @type {Uint8Array} */ (files.get(name))
    const tensors = (/** @type {number} */ set, /** @type {string} */ kind) => {
      const list = []
      for (let i = 0; ; i++) {
        const name = `${folder}/test_data_set_${set}/${kind}_${i}.pb`
        if (!files.has(name)) return list
        list.push(content(name))
      }
    }
    const sets = []
    for (let set = 0; tensors(set, 'output').length > 0; set++) {
      sets.push({ inputs: tensors(set, 'input'), outputs: tensors(set, 'output') })
    }
    return { name: path.posix.basename(folder), model: content(model), sets }
  })
}

/** @param {string} folder */
function readFolder(folder) {
  const files = new Map()
  for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    const file = path.join(folder, name)
    if (statSync(file).isFile()) files.set(name.split(path.sep).join('/'), readFileSync(file))
  }
  return files
}
