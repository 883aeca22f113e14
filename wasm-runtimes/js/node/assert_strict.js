module.exports = require("node:assert").strict;
