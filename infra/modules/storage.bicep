// The app's storage account: the host's own blobs, the deployed package, the app's tables and queues, and the
// task hub unless a Durable Task Scheduler keeps it. Keys are off; what may reach it stands below.
param name string
param location string
param tags object
param sku string

@description('Of the app\'s identity.')
param principalId string

@description('Whether private endpoints alone reach it.')
param isPrivate bool

@description('Name of a second account, with the share of code that the Premium plan mounts; empty = none.')
param contentAccountName string

var containerName = 'app-package'
var shareName = 'app-content'
var hasContent = !empty(contentAccountName)

// The queues that the app listens to. A trigger does not make its queue, and a program that writes to `operations` may
// start before the app does. tests/unit/infra/modules/test_storage.py compares them with the triggers.
var queueNames = ['operations', 'operations-poison']

var roles = {
  // The host keeps leases, function keys and timers' records in blobs, and takes the package from one.
  blobs: 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b' // Storage Blob Data Owner
  // Task hub and outbox: queues are made, written, read and cleared.
  queues: '974c5e8b-45b9-4653-ba55-5f855dd0fb88' // Storage Queue Data Contributor
  // Task hub, dead letters, outbox, markers: tables are made, written, read and cleared.
  tables: '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3' // Storage Table Data Contributor
}

resource account 'Microsoft.Storage/storageAccounts@2024-01-01' = {
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: { name: sku }
  properties: {
    allowSharedKeyAccess: false
    allowBlobPublicAccess: false
    defaultToOAuthAuthentication: true
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
  }

  resource blobs 'blobServices' = {
    name: 'default'

    resource packages 'containers' = {
      name: containerName
    }
  }
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2024-01-01' = {
  parent: account
  name: 'default'
}

resource queues 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' = [
  for queueName in queueNames: {
    parent: queueService
    name: queueName
  }
]

// Of its own, so that the account above needs no keys.
resource content 'Microsoft.Storage/storageAccounts@2024-01-01' = if (hasContent) {
  name: hasContent ? contentAccountName : 'none'
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: { name: sku }
  properties: {
    allowSharedKeyAccess: true
    allowBlobPublicAccess: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
  }

  resource files 'fileServices' = {
    name: 'default'

    resource share 'shares' = {
      name: shareName
    }
  }
}

resource access 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in items(roles): {
    name: guid(account.id, principalId, role.value)
    scope: account
    properties: {
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role.value)
      principalId: principalId
      principalType: 'ServicePrincipal'
    }
  }
]

output id string = account.id
output name string = account.name
output contentId string = hasContent ? content.id : ''
output contentShareName string = shareName
output deploymentContainerUrl string = '${account.properties.primaryEndpoints.blob}${containerName}'
