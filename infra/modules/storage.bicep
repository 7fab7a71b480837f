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

@description('Days in which what was deleted or overwritten in blobs can be restored.')
param retentionDays int

@description('The Log Analytics workspace that keeps who read, wrote and deleted what.')
param workspaceId string

var containerName = 'app-package'

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
    // Function keys and deployed packages lie here. Tables and queues have nothing of the kind.
    properties: {
      deleteRetentionPolicy: { enabled: true, days: retentionDays }
      containerDeleteRetentionPolicy: { enabled: true, days: retentionDays }
    }

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

resource blobLogs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'logs'
  scope: account::blobs
  properties: {
    workspaceId: workspaceId
    // Of blobs alone: they hold the keys and the code. A log line for each request of the task hub would cost more than the
    // requests.
    logs: [
      { category: 'StorageWrite', enabled: true }
      { category: 'StorageDelete', enabled: true }
    ]
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
output deploymentContainerUrl string = '${account.properties.primaryEndpoints.blob}${containerName}'
