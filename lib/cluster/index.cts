// index.cts: the cluster for CommonJS: the ES modules themselves, so that a program which uses both has one of each class.
import api = require('./index.js')

export = api
